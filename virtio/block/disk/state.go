package disk

import (
	"bytes"
	"fmt"
	"os"
)

// State is the index of a disk. It comes from a snapshot file: untrusted.
//
// A run takes eight bytes, and a disk of n blocks has n/2 runs at the most, of
// single blocks: 1 MiB of state for each GiB of disk then. A megabyte written in
// one piece is one run.
type State struct {
	Size   int64 `cbor:"size"` // bytes
	Layers int   `cbor:"layers"`
	// Under has the owners beneath the top of a writable disk, or of the
	// whole disk when it is read only. The bottom's blocks are left out.
	Under Runs `cbor:"under"`
	// Top has the blocks that the top holds: none right after a Freeze.
	Top Runs `cbor:"top"`
}

// State saves the index. The cost is that of the blocks written since the last
// Freeze. Preconditions as for Freeze.
func (d *Disk) State() State {
	s := State{Size: d.size, Layers: len(d.layers)}
	if d.index != nil {
		s.Under, s.Top = d.index.below, d.index.top(len(d.layers)-1)
	}
	return s
}

// Restore returns the disk of the given files with a saved index. An error of
// the state's wraps ErrState.
func Restore(files []*os.File, readOnly bool, s State) (*Disk, error) {
	d, err := open(files, readOnly)
	if err != nil {
		return nil, err
	}
	if s.Size != d.size || s.Layers != len(d.layers) {
		return nil, fmt.Errorf("disk: index of %d bytes in %d layers, files have %d in %d: %w", s.Size, s.Layers, d.size, len(d.layers), ErrState)
	}
	under, top := len(d.layers), len(d.layers)
	if !readOnly {
		under--
	}
	if err := d.checkRuns(s.Under, 0, under); err != nil {
		return nil, err
	}
	if err := d.checkRuns(s.Top, under, top); err != nil {
		return nil, err
	}
	if d.index == nil {
		return d, nil
	}
	d.index.below = s.Under
	for i := range s.Top.Len() {
		r := s.Top.At(i)
		for k := range int64(r.Count) {
			d.index.claim(int64(r.First)+k, r.owner())
		}
	}
	return d, nil
}

// Rewind returns what Restore does, taking over the index of a disk that is used
// no more, for the cost of what that one wrote since its last Freeze; nil when s
// is not of that Freeze, or the files beneath the top are others. The top may be
// a new file. Afterwards old must not be used.
func Rewind(old *Disk, files []*os.File, readOnly bool, s State) *Disk {
	if readOnly != old.readOnly || len(files) != len(old.layers) || s.Layers != len(files) || s.Size != old.size || len(s.Top) > 0 {
		return nil
	}
	var below Runs
	if old.index != nil {
		below = old.index.below
	}
	if !bytes.Equal(s.Under, below) || old.index == nil && !readOnly {
		return nil
	}
	d := &Disk{size: old.size, readOnly: readOnly, layers: make([]layer, len(files)), index: old.index, scratch: old.scratch}
	for i, f := range files {
		write := !readOnly && i == len(files)-1
		l, err := newLayer(f, write, old.layers)
		if err != nil || l.id != old.layers[i].id && !write {
			return nil
		}
		d.layers[i] = l
	}
	if d.index != nil {
		d.index.drop()
	}
	old.layers, old.index = nil, nil
	return d
}

// checkRuns checks runs whose layers must be from low up to but not high, and
// that the files have the blocks.
func (d *Disk) checkRuns(runs Runs, low, high int) error {
	if len(runs) > 0 && d.index == nil {
		return fmt.Errorf("disk: %d bytes of index for one file: %w", len(runs), ErrState)
	}
	ends, err := runs.check(d.size, low, high)
	if err != nil {
		return err
	}
	for i, end := range ends {
		if have := d.layers[i].size; have < end {
			return fmt.Errorf("disk: layer %d has %d bytes, its index needs %d: %w", i, have, end, ErrState)
		}
	}
	return nil
}

// check checks runs of a disk of size bytes, whose layers must be from low up to but
// not high, and returns how many bytes they need of each layer.
func (r Runs) check(size int64, low, high int) (ends []int64, err error) {
	if len(r)%runBytes != 0 {
		return nil, fmt.Errorf("disk: index of %d bytes: %w", len(r), ErrState)
	}
	ends = make([]int64, high)
	var next int64
	blocks := (size + BlockSize - 1) / BlockSize
	for i := range r.Len() {
		run := r.At(i)
		end := int64(run.First) + int64(run.Count)
		layer := int(run.Layer)
		if run.Count == 0 || int64(run.First) < next || end > blocks || layer < low || layer >= high {
			return nil, fmt.Errorf("disk: run of %d blocks at %d in layer %d: %w", run.Count, run.First, run.Layer, ErrState)
		}
		next = end
		if !run.Zero {
			ends[layer] = min(end*BlockSize, size)
		}
	}
	return ends, nil
}
