package disk

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
)

// State is the index of a disk. It comes from a snapshot file: untrusted.
type State struct {
	Size   int64 `cbor:"size"` // bytes
	Layers int   `cbor:"layers"`
	// Under has the owners beneath the top of a writable disk, or of the
	// whole disk when it is read only. The bottom's blocks are left out.
	Under []Run `cbor:"under"`
	// Top has the blocks that the top holds.
	Top []Run `cbor:"top"`
}

// Run is a number of blocks in a row with the same owner. Runs are in
// ascending order and do not overlap.
type Run struct {
	_     struct{} `cbor:",toarray"`
	First uint32   // block number
	Count uint32
	Layer uint16
	Zero  bool // the blocks are zeros and not in the layer's file
}

func (r Run) owner() owner {
	if r.Zero {
		return zeroIn(int(r.Layer))
	}
	return dataIn(int(r.Layer))
}

// State saves the index. The cost is that of the chunks in use: pieces of 256
// KiB in which something was written. Preconditions as for Freeze.
func (d *Disk) State() State {
	s := State{Size: d.size, Layers: len(d.layers)}
	if d.index == nil {
		return s
	}
	claims := slices.Clone(d.index.claims)
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.block, b.block) })
	for i := range d.index.chunks {
		c := d.index.chunks[i].Load()
		if c == nil {
			continue
		}
		for k := range c {
			block := uint32(i*chunkBlocks + k)
			o := owner(c[k].Load())
			if len(claims) > 0 && claims[0].block == block {
				s.Top = appendBlock(s.Top, block, o)
				o, claims = claims[0].under, claims[1:]
			}
			if o != 0 {
				s.Under = appendBlock(s.Under, block, o)
			}
		}
	}
	return s
}

func appendBlock(runs []Run, block uint32, o owner) []Run {
	if n := len(runs); n > 0 {
		if last := &runs[n-1]; last.First+last.Count == block && last.owner() == o {
			last.Count++
			return runs
		}
	}
	return append(runs, Run{First: block, Count: 1, Layer: uint16(o.layer()), Zero: o.zero()})
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
	for _, r := range s.Under {
		for i := range int64(r.Count) {
			d.index.set(int64(r.First)+i, r.owner())
		}
	}
	for _, r := range s.Top {
		for i := range int64(r.Count) {
			d.index.claim(int64(r.First)+i, r.owner())
		}
	}
	return d, nil
}

// checkRuns checks runs whose layers must be from low up to but not high, and
// that the files have the blocks.
func (d *Disk) checkRuns(runs []Run, low, high int) error {
	if len(runs) > 0 && d.index == nil {
		return fmt.Errorf("disk: index for a single file: %w", ErrState)
	}
	ends := make([]int64, len(d.layers)) // bytes that the index needs of each file
	var next int64
	blocks := (d.size + BlockSize - 1) / BlockSize
	for _, r := range runs {
		end := int64(r.First) + int64(r.Count)
		layer := int(r.Layer)
		if r.Count == 0 || int64(r.First) < next || end > blocks || layer < low || layer >= high {
			return fmt.Errorf("disk: run of %d blocks at %d in layer %d: %w", r.Count, r.First, r.Layer, ErrState)
		}
		next = end
		if !r.Zero {
			ends[layer] = min(end*BlockSize, d.size)
		}
	}
	for i, end := range ends {
		if end == 0 {
			continue
		}
		have, err := d.layers[i].length()
		if err != nil {
			return fmt.Errorf("disk: stat layer %d: %w", i, err)
		}
		if have < end {
			return fmt.Errorf("disk: layer %d has %d bytes, its index needs %d: %w", i, have, end, ErrState)
		}
	}
	return nil
}

// A layer number fits a Run.
const _ = uint(math.MaxUint16 - MaxLayers)
