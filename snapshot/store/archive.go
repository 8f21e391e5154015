package store

import (
	"encoding/json"
	"fmt"
	"strings"

	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
)

// An archive is a tar in zstd. Nothing in it decides where something is written:
// the reader knows which entry comes next and how long it is, and takes no other.
//
//	thaw-archive.json      list: every snapshot, parents first, the wanted one last,
//	                       with each entry's size and digest
//	<id>/manifest.json     then, for each file of the manifest, in its order:
//	<id>/<file>            a small file as it is, or
//	<id>/<layer>.sum       a layer's digests, and
//	<id>/<layer>           its chunks of 1 MiB that are not zero, one after another
type archiveList struct {
	Version   int               `json:"version"`
	Snapshots []archiveSnapshot `json:"snapshots"`
}

type archiveSnapshot struct {
	ID      string         `json:"id"`
	Entries []archiveEntry `json:"entries"`
}

// archiveEntry is one entry of the tar. A layer's digest is that of its list.
type archiveEntry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // in the archive
	Digest string `json:"digest"`
}

const (
	archiveVersion = 1
	archiveName    = "thaw-archive.json"
	maxList        = 16 << 20 // bytes
)

// decodeList reads an archive's list strictly. Errors wrap ErrArchive.
func decodeList(b []byte, maxSnapshots int, maxBytes int64) (*archiveList, error) {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	var l archiveList
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("store: archive's list: %w: %w", err, ErrArchive)
	}
	if l.Version != archiveVersion || len(l.Snapshots) == 0 || len(l.Snapshots) > maxSnapshots {
		return nil, fmt.Errorf("store: archive of version %d with %d snapshots, at most %d: %w", l.Version, len(l.Snapshots), maxSnapshots, ErrArchive)
	}
	seen := map[string]bool{}
	var total int64
	for _, s := range l.Snapshots {
		if !manifest.ValidID(s.ID) || seen[s.ID] || len(s.Entries) > 9+8*manifest.MaxDisks {
			return nil, fmt.Errorf("store: archive's snapshot %.40q of %d entries: %w", s.ID, len(s.Entries), ErrArchive)
		}
		seen[s.ID] = true
		for _, e := range s.Entries {
			if e.Size < 0 || e.Size > layer.MaxSize || !manifest.ValidDigest(e.Digest) {
				return nil, fmt.Errorf("store: archive's entry %.70q of %d bytes: %w", e.Name, e.Size, ErrArchive)
			}
			if total += e.Size; total > maxBytes {
				return nil, fmt.Errorf("store: archive of more than %d bytes: %w", maxBytes, ErrArchive)
			}
		}
	}
	return &l, nil
}

// entriesOf lists the entries of a snapshot, in their order. packed says how long a
// layer is in the archive.
func entriesOf(m *Manifest, encoded []byte, packed func(File) (int64, error)) ([]archiveEntry, error) {
	entries := []archiveEntry{{Name: manifest.FileName, Size: int64(len(encoded)), Digest: sha(encoded)}}
	for _, f := range m.Files {
		if f.Layer {
			size, err := packed(f)
			if err != nil {
				return nil, err
			}
			entries = append(entries,
				archiveEntry{Name: f.Name + manifest.SumSuffix, Size: layer.EncodedSize(f.Size), Digest: f.Digest},
				archiveEntry{Name: f.Name, Size: size, Digest: f.Digest})
			continue
		}
		entries = append(entries, archiveEntry{Name: f.Name, Size: f.Size, Digest: f.Digest})
	}
	return entries, nil
}
