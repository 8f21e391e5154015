package store

import (
	"context"
	"fmt"
	"os"
)

// DiskFolder changes what a state file says of disks, which only the virtual disk's own
// code understands. Layers are counted from the lowest, 0; the empty top that a writable
// disk has in its state is none of them.
type DiskFolder interface {
	// Rebase returns the state of a machine that was just saved as if it had run on the
	// layers that parent's state knows: the files that it was given may have been others,
	// folded meanwhile or now. layers has how many there are below the one that it added
	// to each disk, or all of a read-only one. A nil parent changes nothing; the state
	// must have these layers then.
	Rebase(state, parent []byte, layers map[string]int) ([]byte, error)
	// Fold returns the state with layers of disk id, from first up to, not including,
	// last, made one, and writes that one to out, unless it is nil. It reads of files
	// only these layers.
	Fold(ctx context.Context, state []byte, id string, files []*os.File, first, last int, out *os.File) ([]byte, error)
}

// rebase makes the state of a draft one of the layers that its manifest will have.
func (d *Draft) rebase(state []byte, c Content, parent *Manifest) ([]byte, error) {
	folder := d.store.opts.Folder
	if folder == nil {
		return state, nil
	}
	var below []byte
	layers := map[string]int{}
	for _, disk := range c.Disks {
		layers[disk.ID] = len(disk.External)
	}
	if parent != nil {
		for _, disk := range parent.Disks {
			layers[disk.ID] = len(disk.Layers)
		}
		var err error
		if below, err = d.store.readState(parent); err != nil {
			return nil, err
		}
	}
	state, err := folder.Rebase(state, below, layers)
	if err != nil {
		return nil, fmt.Errorf("store: disks of the state: %w: %w", err, ErrInvalid)
	}
	return state, nil
}

// checkDisks says whether a state has the disks' layers that its manifest names.
func (s *Store) checkDisks(m *Manifest, state []byte) error {
	if s.opts.Folder == nil {
		return nil
	}
	layers := map[string]int{}
	for _, d := range m.Disks {
		if layers[d.ID] = len(d.Layers); !d.ReadOnly {
			layers[d.ID]--
		}
	}
	if _, err := s.opts.Folder.Rebase(state, nil, layers); err != nil {
		return fmt.Errorf("store: disks in the state of %s: %w: %w", m.ID, err, ErrDamaged)
	}
	return nil
}
