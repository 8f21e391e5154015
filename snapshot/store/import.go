package store

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"

	"thaw/snapshot/archive"
	"thaw/snapshot/durable"
	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
	"thaw/snapshot/plan"
)

// ImportOptions bound an import.
type ImportOptions struct {
	Tenant       string // who owns what is imported
	MaxBytes     int64  // uncompressed; 0: 64 GiB
	MaxSnapshots int    // 0: 1024
}

// Import reads an archive and returns the new id of the snapshot that was exported.
// All of it appears, or nothing. Ids are new: an archive can neither take an existing
// snapshot's place nor name one as its parent. The fingerprints are kept, and decide
// at the first restore. Errors: ErrArchive, ErrDamaged, ErrNoSpace, those of r.
func (s *Store) Import(ctx context.Context, r io.Reader, o ImportOptions) (string, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 30
	}
	if o.MaxSnapshots <= 0 {
		o.MaxSnapshots = 1024
	}
	from := &source{r: r}
	z, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(8<<20), zstd.WithDecoderLowmem(true))
	if err != nil {
		return "", fmt.Errorf("store: start decompressing: %w", err)
	}
	defer z.Close()
	dir, err := s.plans().New()
	if err != nil {
		return "", err
	}
	x := importer{store: s, tar: tar.NewReader(&unpacked{z, from}), dir: dir, options: o, ids: map[string]string{}, got: map[string]*Manifest{}}
	decided := false
	defer func() {
		if !decided {
			os.RemoveAll(dir)
		}
	}()
	if err := x.read(ctx); err != nil {
		return "", fmt.Errorf("store: import: %w", err)
	}
	if err := s.at(stepImportWhole); err != nil {
		return "", err
	}
	if decided, err = s.plans().Decide(dir, plan.Plan{Install: x.order}); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range x.order {
		s.add(id, &entry{m: x.got[id], used: time.Now(), bytes: durable.FolderUse(s.dir(id))})
	}
	return x.order[len(x.order)-1], nil
}

// importer reads an archive into a plan's folder.
type importer struct {
	store   *Store
	tar     *tar.Reader
	dir     string
	options ImportOptions
	ids     map[string]string    // new ids by those in the archive
	got     map[string]*Manifest // by new id
	order   []string             // new ids, parents first
}

func (x *importer) read(ctx context.Context) error {
	b, err := x.small(archive.Name, -1, archive.MaxList)
	if err != nil {
		return err
	}
	list, err := archive.Decode(b, x.options.MaxSnapshots, x.options.MaxBytes)
	if err != nil {
		return err
	}
	var total int64
	for _, snapshot := range list.Snapshots {
		for _, e := range snapshot.Entries {
			total += e.Size
		}
	}
	if err := x.store.room(total); err != nil {
		return err
	}
	for _, snapshot := range list.Snapshots {
		if err := x.snapshot(ctx, snapshot); err != nil {
			return err
		}
	}
	if _, err := x.tar.Next(); !errors.Is(err, io.EOF) {
		return fmt.Errorf("entries after the last: %w: %w", ErrArchive, errorOr(err))
	}
	return nil
}

// source notes whether reading failed: then it is not the archive's fault.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err = err
	}
	return n, err
}

// unpacked gives errors of decompression a type.
type unpacked struct {
	z    io.Reader
	from *source
}

func (u *unpacked) Read(b []byte) (int, error) {
	n, err := u.z.Read(b)
	if err != nil && !errors.Is(err, io.EOF) && u.from.err == nil {
		err = fmt.Errorf("decompress: %w: %w", err, ErrArchive)
	}
	return n, err
}

// snapshot reads one snapshot, gives it a new id and verifies all of it.
func (x *importer) snapshot(ctx context.Context, from archive.Snapshot) error {
	if len(from.Entries) == 0 || from.Entries[0].Name != manifest.FileName {
		return fmt.Errorf("snapshot %s has no manifest: %w", from.ID, ErrArchive)
	}
	b, err := x.small(from.ID+"/"+manifest.FileName, from.Entries[0].Size, manifest.MaxSize)
	if err != nil {
		return err
	}
	if sha(b) != from.Entries[0].Digest {
		return fmt.Errorf("manifest of %s: %w", from.ID, ErrDamaged)
	}
	m, err := manifest.Decode(b)
	if err != nil {
		return err
	}
	if err := x.matches(from, m, b); err != nil {
		return err
	}
	if err := x.rename(from.ID, m); err != nil {
		return err
	}
	dir := filepath.Join(x.dir, m.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make folder: %w", durable.Full(err))
	}
	rest := from.Entries[1:]
	for _, f := range m.Files {
		n, err := x.file(ctx, dir, from.ID, m, f, rest)
		if err != nil {
			return err
		}
		rest = rest[n:]
		if err := x.store.at(stepImportFile); err != nil {
			return err
		}
	}
	if b, err = m.Encode(); err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(dir, manifest.FileName), b); err != nil {
		return err
	}
	if err := durable.SyncDir(dir); err != nil {
		return err
	}
	x.got[m.ID] = m
	x.order = append(x.order, m.ID)
	return nil
}

// matches says whether the list names the manifest's files, and them only.
func (x *importer) matches(from archive.Snapshot, m *Manifest, encoded []byte) error {
	sizes := map[string]int64{}
	for _, e := range from.Entries {
		sizes[e.Name] = e.Size
	}
	want, err := archive.Entries(m, encoded, func(f File) (int64, error) { return sizes[f.Name], nil })
	if err != nil {
		return err
	}
	if m.ID != from.ID || !slices.Equal(want, from.Entries) {
		return fmt.Errorf("list and manifest of %s differ: %w", from.ID, ErrArchive)
	}
	return nil
}

// rename gives the manifest a new id, and its parents theirs, which came before.
func (x *importer) rename(old string, m *Manifest) error {
	for need := range m.Needs() {
		if x.ids[need] == "" {
			return fmt.Errorf("snapshot %s needs %s, which does not come before it: %w: %w", old, need, ErrParentMissing, ErrArchive)
		}
	}
	x.ids[old] = manifest.NewID()
	// Not in Merged: those ids mean nothing here.
	m.ID, m.Origin, m.Parent, m.Tenant, m.Pinned, m.Merged = x.ids[old], old, x.ids[m.Parent], x.options.Tenant, false, nil
	for i := range m.Memory {
		m.Memory[i].Snapshot = x.ids[m.Memory[i].Snapshot]
	}
	for _, d := range m.Disks {
		for i := range d.Layers {
			d.Layers[i].Snapshot = x.ids[d.Layers[i].Snapshot]
		}
	}
	return judgeRefs(m, func(id string) *Manifest { return x.got[id] })
}

// file reads one file of a snapshot, from one entry or two, and verifies it.
func (x *importer) file(ctx context.Context, dir, old string, m *Manifest, f File, entries []archive.Entry) (int, error) {
	path := filepath.Join(dir, f.Name)
	if f.Layer {
		return 2, x.layer(ctx, path, old, m, f, entries[1].Size)
	}
	b, err := x.small(old+"/"+f.Name, f.Size, manifest.MaxIndex)
	if err != nil {
		return 0, err
	}
	if sha(b) != f.Digest {
		return 0, fmt.Errorf("%s of %s: %w", f.Name, old, ErrDamaged)
	}
	switch manifest.BaseName(f.Name) {
	case manifest.StateName:
		if _, err = format.Read(bytes.NewReader(b), format.Limits{}); err == nil {
			err = x.store.checkDisks(m, b)
		}
	case manifest.IndexName:
		_, err = decodeIndex(m, b)
	}
	if err != nil {
		return 0, err
	}
	return 1, durable.WriteFile(path, b)
}

func (x *importer) layer(ctx context.Context, path, old string, m *Manifest, f File, packed int64) error {
	b, err := x.small(old+"/"+f.Name+manifest.SumSuffix, layer.EncodedSize(f.Size), layer.EncodedSize(f.Size))
	if err != nil {
		return err
	}
	root, err := manifest.ParseDigest(f.Digest)
	if err != nil {
		return err
	}
	sum, err := layer.DecodeSum(b, root)
	if err != nil {
		return err
	}
	if sum.Size != f.Size || sum.Packed() != packed {
		return fmt.Errorf("layer %s of %s has %d bytes, %d in the archive: %w", f.Name, old, sum.Size, packed, ErrArchive)
	}
	if err := durable.WriteFile(path+manifest.SumSuffix, b); err != nil {
		return err
	}
	if err := x.next(old+"/"+f.Name, packed); err != nil {
		return err
	}
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("make file: %w", durable.Full(err))
	}
	return durable.Finish(to, layer.Unpack(ctx, to, x.tar, sum))
}

// next goes to the next entry, which must be this one. A size below 0 is any.
func (x *importer) next(name string, size int64) error {
	h, err := x.tar.Next()
	if err != nil {
		return fmt.Errorf("entry %s: %w: %w", name, err, ErrArchive)
	}
	if h.Typeflag != tar.TypeReg || h.Name != name || size >= 0 && h.Size != size {
		return fmt.Errorf("entry %.100q of %d bytes, type %q, not %s of %d: %w", h.Name, h.Size, h.Typeflag, name, size, ErrArchive)
	}
	return nil
}

// small reads an entry that fits into memory.
func (x *importer) small(name string, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, fmt.Errorf("entry %s of %d bytes: %w", name, size, ErrArchive)
	}
	if err := x.next(name, size); err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(x.tar, limit+1))
	if err != nil {
		return nil, fmt.Errorf("entry %s: %w: %w", name, err, ErrArchive)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("entry %s of more than %d bytes: %w", name, limit, ErrArchive)
	}
	return b, nil
}
