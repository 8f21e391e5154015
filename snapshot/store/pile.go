package store

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"slices"
	"strconv"

	"thaw/snapshot/durable"
	"thaw/snapshot/layer"
)

// A restore passes every layer of a disk to the VMM as a descriptor of its own. To
// keep these few at any depth, Resolve folds the older layers of a long chain in
// groups, whose files have no name: they are gone with the daemon, and made again of the
// layers when they are wanted.
//
//	chain   T ◀─ 1 ◀─ … ◀─ 64 ◀─ … ◀─ 96 ◀─ 97 ◀─ … ◀─ 100
//	files   T    └── one ──┘└── one ──┘    97 98 99 100
//
// Groups are shared by all that have the same layers below them. Their lengths are
// groupLayers times the powers of two that the chain's length is made of, so that a
// chain that grows copies nothing mostly, and each layer a number of times that grows
// with the logarithm of the depth.
const groupLayers = 32

// foldBytes bounds the files of groups that nobody uses.
const foldBytes = 2 << 30

// group is the layers of a disk from first up to, not including, last.
type group struct{ first, last int }

// groups parts a disk's layers above the first keep. Most groups have one layer.
func groups(keep, n int) []group {
	var out []group
	at := keep
	for left := (n - keep) / groupLayers; left > 0; {
		size := 1 << (bits.Len(uint(left)) - 1)
		out = append(out, group{at, at + size*groupLayers})
		at, left = at+size*groupLayers, left-size
	}
	for ; at < n; at++ {
		out = append(out, group{at, at + 1})
	}
	return out
}

// below is how many of a disk's layers are the template's or outside the store.
func below(m *Manifest, d Disk) int {
	base := m.Memory[0].Snapshot
	for i, r := range d.Layers {
		if r.External == "" && r.Snapshot != base {
			return i
		}
	}
	return len(d.Layers)
}

// openDisks opens the layers of the chain's disks, folded where they are many, and the
// state that knows them.
func (c *Chain) openDisks(ctx context.Context) error {
	m, s := c.Manifest, c.lease.store
	var folded []foldedDisk
	for i, d := range m.Disks {
		out := ChainDisk{Disk: d}
		out.Layers = nil
		keep := below(m, d)
		parts := groups(keep, len(d.Layers))
		if s.opts.Folder == nil {
			parts = groups(len(d.Layers), len(d.Layers))
			keep = len(d.Layers)
		}
		for _, r := range d.Layers[:keep] {
			if err := c.openLayer(ctx, &out, r); err != nil {
				return err
			}
		}
		for _, g := range parts {
			if g.last-g.first == 1 {
				if err := c.openLayer(ctx, &out, d.Layers[g.first]); err != nil {
					return err
				}
				continue
			}
			f, err := c.openGroup(ctx, i, g)
			if err != nil {
				return err
			}
			// Whoever asks what the file is learns what it ends with.
			out.Layers, out.Files = append(out.Layers, d.Layers[g.last-1]), append(out.Files, f)
			folded = append(folded, foldedDisk{d.ID, g})
		}
		c.Disks = append(c.Disks, out)
	}
	open := func() (*os.File, error) { return s.openState(m) }
	name := m.StateFile()
	if len(folded) > 0 {
		name, open = foldPrefix+name, func() (*os.File, error) { return s.foldedState(ctx, m, folded) }
	}
	var err error
	c.State, err = c.open(m.ID, name, open)
	return err
}

// openLayer opens one layer as it is.
func (c *Chain) openLayer(ctx context.Context, d *ChainDisk, r Ref) error {
	var f *os.File
	if r.External == "" {
		var err error
		f, err = c.open(r.Snapshot, r.File, func() (*os.File, error) { return c.lease.store.openVerified(ctx, r) })
		if err != nil {
			return err
		}
	}
	d.Layers, d.Files = append(d.Layers, r), append(d.Files, f)
	return nil
}

// foldPrefix begins the names under which folded files are kept open: no file of a
// snapshot has such a name.
const foldPrefix = ".fold."

// openGroup opens a group of the chain's disk i. It is made as the snapshot that added
// its last layer sees it: every block that a snapshot above it has from these layers is
// visible there. If that one was merged since, it is made for this chain alone.
func (c *Chain) openGroup(ctx context.Context, i int, g group) (*os.File, error) {
	m, s := c.Manifest, c.lease.store
	layers := m.Disks[i].Layers
	last := layers[g.last-1]
	name := foldPrefix + last.File + "." + strconv.Itoa(g.first)
	owner, err := s.Get(last.Snapshot)
	if err == nil && len(owner.Disks) == len(m.Disks) && slices.Equal(owner.Disks[i].Layers, layers[:g.last]) {
		f, err := c.open(owner.ID, name, func() (*os.File, error) { return s.fold(ctx, owner, i, g) })
		if err == nil || !s.replaced(owner) {
			return f, err
		}
	}
	return c.open(m.ID, name, func() (*os.File, error) { return s.fold(ctx, m, i, g) })
}

// fold makes the file of a group, as m sees it.
func (s *Store) fold(ctx context.Context, m *Manifest, i int, g group) (*os.File, error) {
	d := m.Disks[i]
	state, err := s.readState(m)
	if err != nil {
		return nil, err
	}
	files, closeAll, err := s.openLayers(ctx, d.Layers, g)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	out, err := durable.Nameless(s.work())
	if err != nil {
		return nil, err
	}
	defer out.Close()
	if _, err := s.opts.Folder.Fold(ctx, state, d.ID, files, g.first, g.last, out); err != nil {
		return nil, fmt.Errorf("store: fold disk %s of %s: %w", d.ID, m.ID, foldError(err))
	}
	return durable.ReadOnly(out)
}

// foldError gives an error of a folder, on files that were verified, a type.
func foldError(err error) error {
	err = durable.Full(err)
	for _, typed := range []error{ErrNoSpace, ErrDamaged, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, typed) {
			return err
		}
	}
	return fmt.Errorf("%w: %w", err, ErrDamaged)
}

// openLayers opens the layers of a group, verified.
func (s *Store) openLayers(ctx context.Context, layers []Ref, g group) (files []*os.File, closeAll func(), err error) {
	files = make([]*os.File, g.last)
	closeAll = func() {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}
	for i := g.first; i < g.last; i++ {
		if files[i], err = s.openVerified(ctx, layers[i]); err != nil {
			return nil, closeAll, err
		}
	}
	return files, closeAll, nil
}

// foldedDisk is a group of a disk.
type foldedDisk struct {
	id string
	group
}

// foldedState is the state of m with groups of layers made one, in memory.
func (s *Store) foldedState(ctx context.Context, m *Manifest, folded []foldedDisk) (*os.File, error) {
	state, err := s.readState(m)
	if err != nil {
		return nil, err
	}
	for _, d := range slices.Backward(folded) { // the higher ones first: numbers below stay
		if state, err = s.opts.Folder.Fold(ctx, state, d.id, nil, d.first, d.last, nil); err != nil {
			return nil, fmt.Errorf("store: fold disk %s of %s: %w", d.id, m.ID, foldError(err))
		}
	}
	f, err := layer.NewMemfd("thaw-state", int64(len(state)))
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(state, 0); err == nil {
		err = layer.Seal(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("store: keep folded state: %w", err)
	}
	return f, nil
}

// replaced says whether a snapshot has another manifest than m by now.
func (s *Store) replaced(m *Manifest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[m.ID]
	return e != nil && e.m != m
}
