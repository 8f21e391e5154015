package store

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"thaw/snapshot/durable"
	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
	"thaw/snapshot/pageindex"
)

// Content is what a machine left when it was saved. The files stay the caller's.
type Content struct {
	State      *os.File // as the VMM wrote it, from offset 0
	StateBytes int64
	// Memory of a template is all of it, sparse; of a checkpoint the changed pages,
	// dense, as the delta index in the state names them. nil: no page changed.
	Memory *os.File
	// Disks in the order of the machine; a checkpoint's are those of its parent.
	Disks  []DiskContent
	Record Record // what Commit does not know itself
}

// DiskContent is one disk of a saved machine.
type DiskContent struct {
	ID       string
	ReadOnly bool
	Size     int64 // bytes
	// External has a template's layers that are not the store's, lowest first.
	External []Ref
	// Layer is what was written since the parent, or above External; nil if nothing can
	// have been, because the disk is read-only.
	Layer *os.File
}

// write writes the files of the draft and returns its manifest.
func (d *Draft) write(ctx context.Context, c Content, parent *Manifest) (*Manifest, error) {
	m := &Manifest{
		Version: manifest.Version, ID: d.ID, Kind: d.spec.Kind, Parent: d.spec.Parent, Created: d.made,
		Tenant: d.spec.Tenant, Name: d.spec.Name, Labels: d.spec.Labels, Generation: d.spec.Generation,
		Machine: d.spec.Machine, Fingerprint: d.spec.Fingerprint, Record: c.Record,
	}
	if m.Machine.MemoryBytes == 0 || m.Machine.MemoryBytes > manifest.MaxMemory || m.Machine.MemoryBytes%pageindex.PageSize != 0 {
		return nil, fmt.Errorf("store: machine of %d bytes: %w", m.Machine.MemoryBytes, ErrInvalid)
	}
	state, err := d.writeState(m, c, parent)
	if err != nil {
		return nil, err
	}
	index, err := d.writeMemory(ctx, m, c, state, parent)
	if err != nil {
		return nil, err
	}
	if err := d.store.at(stepMemory); err != nil {
		return nil, err
	}
	if err := d.writeDisks(ctx, m, c, parent); err != nil {
		return nil, err
	}
	d.index = index
	if err := d.addFile(m, manifest.IndexName, index.Encode()); err != nil {
		return nil, err
	}
	if err := d.store.at(stepIndex); err != nil {
		return nil, err
	}
	if parent != nil {
		m.Record.Depth = parent.Record.Depth + 1
	}
	return m, d.sync()
}

// writeState copies the state and verifies the copy: the VMM may still have the file.
func (d *Draft) writeState(m *Manifest, c Content, parent *Manifest) (*format.File, error) {
	if c.StateBytes < format.HeaderSize || c.StateBytes > format.MaxFile {
		return nil, fmt.Errorf("store: state of %d bytes: %w", c.StateBytes, ErrInvalid)
	}
	b := make([]byte, c.StateBytes)
	if n, err := c.State.ReadAt(b, 0); n < len(b) {
		return nil, fmt.Errorf("store: read state: %w: %w", err, ErrInvalid)
	}
	state, err := format.Read(bytes.NewReader(b), format.Limits{})
	if err != nil {
		return nil, fmt.Errorf("store: state of the VMM: %w", err)
	}
	if b, err = d.rebase(b[:state.Size], c, parent); err != nil {
		return nil, err
	}
	if err := d.addFile(m, manifest.StateName, b); err != nil {
		return nil, err
	}
	return state, d.store.at(stepState)
}

// writeMemory copies the pages and returns the index over the whole chain.
func (d *Draft) writeMemory(ctx context.Context, m *Manifest, c Content, state *format.File, parent *Manifest) (*pageindex.Index, error) {
	if parent == nil {
		if c.Memory == nil {
			return nil, fmt.Errorf("store: template without memory: %w", ErrInvalid)
		}
		ref, f, err := d.addLayer(ctx, m, manifest.MemoryName, c.Memory, int64(m.Machine.MemoryBytes), layer.Copy)
		if err != nil {
			return nil, err
		}
		m.Memory = []Ref{ref}
		return pageindex.FromHoles(f, ref.Size)
	}
	below, err := d.store.index(parent)
	if err != nil {
		return nil, err
	}
	delta, size, err := deltaOf(state, below.Pages)
	if err != nil {
		return nil, err
	}
	if parent.Machine != m.Machine || len(parent.Memory) == manifest.MaxLayers {
		return nil, fmt.Errorf("store: delta of %+v in %d layers on a parent of %+v: %w", m.Machine, len(parent.Memory), parent.Machine, ErrInvalid)
	}
	m.Memory = slices.Clone(parent.Memory)
	m.Record.Pages = size / pageindex.PageSize
	m.Record.ZeroPages = int64(delta.Count(func(s uint16) bool { return s == pageindex.Zero }))
	if size > 0 {
		if c.Memory == nil {
			return nil, fmt.Errorf("store: delta of %d bytes without its pages: %w", size, ErrInvalid)
		}
		ref, _, err := d.addLayer(ctx, m, manifest.MemoryName, c.Memory, size, layer.CopySmall)
		if err != nil {
			return nil, err
		}
		m.Memory = append(m.Memory, ref)
	}
	own := uint16(pageindex.FirstOverlay + len(m.Memory) - 2)
	merged := pageindex.Merge(below, delta.Renumber(func(uint16) uint16 { return own }))
	return merged.WithoutZero(), nil
}

// deltaOf returns a checkpoint's own index, as the VMM wrote it, and how many bytes
// of pages it names.
func deltaOf(state *format.File, pages uint32) (*pageindex.Index, int64, error) {
	b, err := state.Section(format.SectionMemory)
	if err != nil {
		return nil, 0, fmt.Errorf("store: delta: %w", err)
	}
	x, err := pageindex.Decode(b, pages)
	if err != nil {
		return nil, 0, fmt.Errorf("store: delta: %w", err)
	}
	if x.Pages != pages {
		return nil, 0, fmt.Errorf("store: delta of a memory of %d pages, not %d: %w", x.Pages, pages, ErrInvalid)
	}
	var end uint32
	for _, r := range x.Runs {
		if r.Dense() {
			end = max(end, r.At+r.Count)
		}
	}
	// One source: the checkpoint's own pages, of which there are not more than pages.
	if err := x.Validate([]uint32{min(end, pages)}); err != nil {
		return nil, 0, fmt.Errorf("store: delta: %w", err)
	}
	return x, int64(end) * pageindex.PageSize, nil
}

func (d *Draft) writeDisks(ctx context.Context, m *Manifest, c Content, parent *Manifest) error {
	if parent != nil && len(parent.Disks) != len(c.Disks) {
		return fmt.Errorf("store: %d disks, the parent has %d: %w", len(c.Disks), len(parent.Disks), ErrInvalid)
	}
	for i, from := range c.Disks {
		disk := Disk{ID: from.ID, ReadOnly: from.ReadOnly, Size: from.Size, Layers: slices.Clone(from.External)}
		if parent != nil {
			below := parent.Disks[i]
			if below.ID != disk.ID || below.Size != disk.Size || below.ReadOnly != disk.ReadOnly || len(from.External) > 0 {
				return fmt.Errorf("store: disk %s is not that of the parent: %w", disk.ID, ErrInvalid)
			}
			disk.Layers = slices.Clone(below.Layers)
		}
		if from.Layer != nil {
			if !manifest.ValidDisk(disk.ID) {
				return fmt.Errorf("store: disk %.40q: %w", disk.ID, ErrInvalid)
			}
			info, err := from.Layer.Stat()
			if err != nil {
				return fmt.Errorf("store: look at disk %s: %w", disk.ID, err)
			}
			ref, f, err := d.addLayer(ctx, m, manifest.DiskPrefix+disk.ID, from.Layer, info.Size(), layer.Copy)
			if err != nil {
				return err
			}
			disk.Layers = append(disk.Layers, ref)
			m.Record.DiskBytes += durable.FileUse(f)
		}
		m.Disks = append(m.Disks, disk)
		if err := d.store.at(stepDisk); err != nil {
			return err
		}
	}
	return nil
}

// addFile writes a small file.
func (d *Draft) addFile(m *Manifest, name string, b []byte) error {
	if err := d.create(name, func(f *os.File) error { _, err := f.Write(b); return err }); err != nil {
		return err
	}
	m.Files = append(m.Files, File{Name: name, Size: int64(len(b)), Digest: sha(b)})
	return nil
}

// addLayer copies a layer and writes its digests.
func (d *Draft) addLayer(ctx context.Context, m *Manifest, name string, from *os.File, size int64, store layer.Store) (Ref, *os.File, error) {
	if err := d.store.room(0); err != nil {
		return Ref{}, nil, err
	}
	var sum *layer.Sum
	err := d.create(name, func(f *os.File) (err error) {
		sum, err = store(ctx, f, from, size)
		return err
	})
	if err != nil {
		return Ref{}, nil, err
	}
	f := d.files[len(d.files)-1]
	b := sum.Encode()
	if err := d.create(name+manifest.SumSuffix, func(f *os.File) error { _, err := f.Write(b); return err }); err != nil {
		return Ref{}, nil, err
	}
	root := sum.Root().String()
	m.Files = append(m.Files, File{Name: name, Size: size, Digest: root, Layer: true})
	return Ref{Snapshot: m.ID, File: name, Size: size, Digest: root}, f, nil
}

// create makes a file of the draft; sync makes it durable.
func (d *Draft) create(name string, fill func(f *os.File) error) error {
	f, err := os.OpenFile(filepath.Join(d.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("store: make file: %w", durable.Full(err))
	}
	d.files = append(d.files, f)
	if err := fill(f); err != nil {
		return fmt.Errorf("store: write %s: %w", name, durable.Full(err))
	}
	return nil
}

// sync makes the files durable, several at a time: they share the journal's commits.
func (d *Draft) sync() error {
	var g errgroup.Group
	g.SetLimit(4)
	for _, f := range d.files {
		g.Go(func() error {
			if err := f.Sync(); err != nil {
				return fmt.Errorf("store: sync %s: %w", filepath.Base(f.Name()), durable.Full(err))
			}
			return nil
		})
	}
	return g.Wait()
}
