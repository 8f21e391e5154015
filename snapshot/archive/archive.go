// Package archive lists what is in an archive of snapshots: a tar in zstd. Nothing in it
// decides where something is written: the reader knows from the list which entry comes next
// and how long it is, and takes no other.
//
//	thaw-archive.json      list: every snapshot, parents first, the wanted one last,
//	                       with each entry's size and digest
//	<id>/manifest.json     then, for each file of the manifest, in its order:
//	<id>/<file>            a small file as it is, or
//	<id>/<layer>.sum       a layer's digests, and
//	<id>/<layer>           its chunks of 1 MiB that are not zero, one after another
package archive

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
)

// ErrArchive says that an archive is malformed or breaks a bound.
var ErrArchive = errors.New("malformed snapshot archive")

// List is the first entry of an archive.
type List struct {
	Version   int        `json:"version"`
	Snapshots []Snapshot `json:"snapshots"`
}

// Snapshot is one snapshot of an archive.
type Snapshot struct {
	ID      string  `json:"id"`
	Entries []Entry `json:"entries"`
}

// Entry is one entry of the tar. A layer's digest is that of its list.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // in the archive
	Digest string `json:"digest"`
}

// What archives of this version have.
const (
	Version = 1
	Name    = "thaw-archive.json" // of the list
	MaxList = 16 << 20            // bytes of the list
)

// Decode reads an archive's list strictly. Errors wrap ErrArchive.
func Decode(b []byte, maxSnapshots int, maxBytes int64) (*List, error) {
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	var l List
	if err := d.Decode(&l); err != nil {
		return nil, fmt.Errorf("archive: list: %w: %w", err, ErrArchive)
	}
	if l.Version != Version || len(l.Snapshots) == 0 || len(l.Snapshots) > maxSnapshots {
		return nil, fmt.Errorf("archive: archive of version %d with %d snapshots, at most %d: %w", l.Version, len(l.Snapshots), maxSnapshots, ErrArchive)
	}
	seen := map[string]bool{}
	var total int64
	for _, s := range l.Snapshots {
		if !manifest.ValidID(s.ID) || seen[s.ID] || len(s.Entries) > 9+8*manifest.MaxDisks {
			return nil, fmt.Errorf("archive: snapshot %.40q of %d entries: %w", s.ID, len(s.Entries), ErrArchive)
		}
		seen[s.ID] = true
		for _, e := range s.Entries {
			if e.Size < 0 || e.Size > layer.MaxSize || !manifest.ValidDigest(e.Digest) {
				return nil, fmt.Errorf("archive: entry %.70q of %d bytes: %w", e.Name, e.Size, ErrArchive)
			}
			if total += e.Size; total > maxBytes {
				return nil, fmt.Errorf("archive: archive of more than %d bytes: %w", maxBytes, ErrArchive)
			}
		}
	}
	return &l, nil
}

// Entries lists the entries of a snapshot, in their order. packed says how long a
// layer is in the archive.
func Entries(m *manifest.Manifest, encoded []byte, packed func(manifest.File) (int64, error)) ([]Entry, error) {
	entries := []Entry{{Name: manifest.FileName, Size: int64(len(encoded)), Digest: layer.Digest(sha256.Sum256(encoded)).String()}}
	for _, f := range m.Files {
		if f.Layer {
			size, err := packed(f)
			if err != nil {
				return nil, err
			}
			entries = append(entries,
				Entry{Name: f.Name + manifest.SumSuffix, Size: layer.EncodedSize(f.Size), Digest: f.Digest},
				Entry{Name: f.Name, Size: size, Digest: f.Digest})
			continue
		}
		entries = append(entries, Entry{Name: f.Name, Size: f.Size, Digest: f.Digest})
	}
	return entries, nil
}
