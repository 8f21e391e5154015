package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thaw/snapshot/durable"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
	"thaw/snapshot/openfiles"
	"thaw/snapshot/pageindex"
)

// Chain is all that a restore of one snapshot needs. It holds a lease. Its files are
// shared with other chains: they must be read by offset only, and not be closed.
type Chain struct {
	Manifest *Manifest
	State    *os.File         // read-only; knows the layers of Disks, not of Memory
	Base     *pageindex.Index // of the template: its data, which is mapped
	Index    *pageindex.Index // of the snapshot; names Memory's layers by position
	Memory   []Layer          // the template's first
	Disks    []ChainDisk

	lease *Lease
	uses  []*openfiles.File
}

// Layer is a layer of memory in the store. Key names its content.
type Layer struct {
	Ref
	dir string
}

// Key is the same for layers of the same bytes.
func (l Layer) Key() string { return l.Digest }

// ChainDisk is one disk of a chain. Where Files has many layers as one, Layers
// names the highest of them.
type ChainDisk struct {
	Disk
	// Files has the disk's layers, opened read-only; nil for those outside the store.
	Files []*os.File
}

// Close gives the files, which the store keeps open, and the lease back.
func (c *Chain) Close() {
	for _, f := range c.uses {
		f.Release()
	}
	c.uses = nil
	c.lease.Release()
}

// open adds a file to the chain.
func (c *Chain) open(id, name string, open func() (*os.File, error)) (*os.File, error) {
	f, err := c.lease.store.files.Acquire(id+"/"+name, strings.HasPrefix(name, foldPrefix), open)
	if err != nil {
		return nil, err
	}
	c.uses = append(c.uses, f)
	return f.File, nil
}

// Resolve opens what a restore needs. Every file is verified the first time that
// this daemon sees it; layers of memory when they are loaded. With a DiskFolder,
// disks of many layers have them folded. Errors: ErrNotFound, ErrDamaged,
// ErrParentMissing, ErrCycle; ErrNoSpace if there is none to fold in.
func (s *Store) Resolve(ctx context.Context, id string) (_ *Chain, err error) {
	lease, err := s.lease(id, true)
	if err != nil {
		return nil, err
	}
	c := &Chain{Manifest: lease.Manifest, lease: lease}
	defer func() {
		if err != nil {
			c.Close()
		}
	}()
	m := c.Manifest
	if c.Index, err = s.index(m); err != nil {
		return nil, err
	}
	base, err := s.Get(m.Memory[0].Snapshot)
	if err != nil {
		return nil, err
	}
	if c.Base, err = s.index(base); err != nil {
		return nil, err
	}
	for _, r := range m.Memory {
		c.Memory = append(c.Memory, Layer{Ref: r, dir: s.dir(r.Snapshot)})
	}
	if err := c.openDisks(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// openState opens the state, and verifies it the first time.
func (s *Store) openState(m *Manifest) (*os.File, error) {
	name := m.StateFile()
	if !s.isVerified(m.ID, name) {
		if _, err := s.readState(m); err != nil {
			return nil, err
		}
		s.setVerified(m.ID, name)
	}
	return durable.OpenRegular(filepath.Join(s.dir(m.ID), name))
}

// readState reads the state, and verifies it.
func (s *Store) readState(m *Manifest) ([]byte, error) {
	name := m.StateFile()
	want, _ := m.File(name)
	return readFile(filepath.Join(s.dir(m.ID), name), want)
}

// openVerified opens a layer, and verifies it the first time. It is nil for a layer
// that is not the store's.
func (s *Store) openVerified(ctx context.Context, r Ref) (*os.File, error) {
	if r.External != "" {
		return nil, nil
	}
	f, sum, err := openLayer(s.dir(r.Snapshot), r, !s.isVerified(r.Snapshot, r.File))
	if err != nil {
		return nil, err
	}
	if sum != nil {
		if err := layer.Verify(ctx, f, sum); err != nil {
			f.Close()
			return nil, fmt.Errorf("store: layer %s of %s: %w", r.File, r.Snapshot, err)
		}
		s.setVerified(r.Snapshot, r.File)
	}
	return f, nil
}

// Load brings the layer into a sealed memfd, verifying it on the way. With huge, what
// is mostly data lies in huge pages.
func (l Layer) Load(ctx context.Context, huge bool) (*os.File, error) {
	f, sum, err := openLayer(l.dir, l.Ref, true)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m, err := layer.Load(ctx, f, sum, "thaw-"+l.Digest[:8], huge)
	if err != nil {
		return nil, fmt.Errorf("store: layer %s of %s: %w", l.File, l.Snapshot, err)
	}
	return m, nil
}

// openLayer opens a layer's file and, withSum, its digests.
func openLayer(dir string, r Ref, withSum bool) (*os.File, *layer.Sum, error) {
	f, err := durable.OpenRegular(filepath.Join(dir, r.File))
	if err != nil || !withSum {
		return f, nil, err
	}
	sum, err := readSum(dir, r)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, sum, nil
}

// readSum reads a layer's digests and compares them with the manifest's.
func readSum(dir string, r Ref) (*layer.Sum, error) {
	root, err := manifest.ParseDigest(r.Digest)
	if err != nil {
		return nil, err
	}
	b, err := durable.ReadBounded(filepath.Join(dir, r.File+manifest.SumSuffix), layer.EncodedSize(r.Size))
	if err != nil {
		return nil, err
	}
	sum, err := layer.DecodeSum(b, root)
	if err != nil {
		return nil, fmt.Errorf("store: layer %s of %s: %w", r.File, r.Snapshot, err)
	}
	if sum.Size != r.Size {
		return nil, fmt.Errorf("store: layer %s of %s has %d bytes, not %d: %w", r.File, r.Snapshot, sum.Size, r.Size, ErrDamaged)
	}
	return sum, nil
}

func (s *Store) isVerified(id, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verified[id+"/"+name]
}

func (s *Store) setVerified(id, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[id] != nil {
		s.verified[id+"/"+name] = true
	}
}
