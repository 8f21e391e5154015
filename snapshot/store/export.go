package store

import (
	"archive/tar"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"github.com/klauspost/compress/zstd"

	"thaw/snapshot/archive"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
)

// Export writes a snapshot, with all that it needs, as an archive. Files outside the
// store, such as images, are not in it: their digests are. Every byte is verified on
// the way out. Errors as of Resolve, and those of w.
func (s *Store) Export(ctx context.Context, id string, w io.Writer) error {
	lease, err := s.settled(ctx, id)
	if err != nil {
		return err
	}
	defer lease.Release()
	manifests, err := s.lineage(lease.Manifest)
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("store: start compressing: %w", err)
	}
	x := exporter{store: s, tar: tar.NewWriter(z)}
	err = x.write(ctx, manifests)
	if e := x.tar.Close(); err == nil {
		err = e
	}
	if e := z.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("store: export %s: %w", id, err)
	}
	return nil
}

// lineage is m and all that it needs, each after what it needs itself.
func (s *Store) lineage(m *Manifest) ([]*Manifest, error) {
	var out []*Manifest
	seen := map[string]bool{}
	var visit func(m *Manifest) error
	visit = func(m *Manifest) error {
		if seen[m.ID] {
			return nil
		}
		seen[m.ID] = true
		for _, id := range slices.Sorted(maps.Keys(m.Needs())) {
			need, err := s.Get(id)
			if err != nil {
				return err
			}
			if err := visit(need); err != nil {
				return err
			}
		}
		out = append(out, m)
		return nil
	}
	return out, visit(m)
}

type exporter struct {
	store *Store
	tar   *tar.Writer
}

func (x *exporter) write(ctx context.Context, manifests []*Manifest) error {
	list := archive.List{Version: archive.Version}
	var encoded [][]byte
	for _, m := range manifests {
		b, err := m.Encode()
		if err != nil {
			return err
		}
		encoded = append(encoded, b)
		entries, err := archive.Entries(m, b, func(f File) (int64, error) {
			sum, err := readSum(x.store.dir(m.ID), ownRef(m, f))
			if err != nil {
				return 0, err
			}
			return sum.Packed(), nil
		})
		if err != nil {
			return err
		}
		list.Snapshots = append(list.Snapshots, archive.Snapshot{ID: m.ID, Entries: entries})
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	if err := x.entry(archive.Name, b); err != nil {
		return err
	}
	for i, m := range manifests {
		if err := x.entry(m.ID+"/"+manifest.FileName, encoded[i]); err != nil {
			return err
		}
		for _, f := range m.Files {
			if err := x.file(ctx, m, f); err != nil {
				return err
			}
		}
	}
	return nil
}

func ownRef(m *Manifest, f File) Ref {
	return Ref{Snapshot: m.ID, File: f.Name, Size: f.Size, Digest: f.Digest}
}

func (x *exporter) file(ctx context.Context, m *Manifest, f File) error {
	dir := x.store.dir(m.ID)
	if !f.Layer {
		b, err := readFile(filepath.Join(dir, f.Name), f)
		if err != nil {
			return err
		}
		return x.entry(m.ID+"/"+f.Name, b)
	}
	file, sum, err := openLayer(dir, ownRef(m, f), true)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := x.entry(m.ID+"/"+f.Name+manifest.SumSuffix, sum.Encode()); err != nil {
		return err
	}
	if err := x.header(m.ID+"/"+f.Name, sum.Packed()); err != nil {
		return err
	}
	return layer.Pack(ctx, x.tar, file, sum)
}

func (x *exporter) entry(name string, b []byte) error {
	if err := x.header(name, int64(len(b))); err != nil {
		return err
	}
	_, err := x.tar.Write(b)
	return err
}

func (x *exporter) header(name string, size int64) error {
	return x.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, Format: tar.FormatPAX})
}
