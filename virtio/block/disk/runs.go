package disk

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// Runs is a list of runs as it is saved: runBytes for each, little endian, in
// ascending order and without overlap.
//
//	bit 63        36 35        13 12      1  0
//	│ first block   │ blocks     │ layer   │ zero │
//
// So small and so plain, because a checkpoint's pause waits for it: no run is
// converted when a state is saved, and runs that do not change are copied as
// bytes. From a snapshot file: untrusted until checked.
type Runs []byte

const (
	runBytes   = 8
	countBits  = 23
	layerBits  = 12
	layerShift = 1
	countShift = layerShift + layerBits
	firstShift = countShift + countBits
	maxCount   = 1<<countBits - 1
)

// The largest disk and pile fit.
const (
	_ = uint(1<<(64-firstShift) - MaxSize/BlockSize)
	_ = uint(1<<layerBits - MaxLayers)
)

// Run is a number of blocks in a row with the same owner.
type Run struct {
	First uint32 // block number
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

func (r Run) end() uint32 { return r.First + r.Count }

// Len is the number of runs.
func (r Runs) Len() int { return len(r) / runBytes }

// At returns run i.
func (r Runs) At(i int) Run {
	v := binary.LittleEndian.Uint64(r[i*runBytes:])
	return Run{
		First: uint32(v >> firstShift), Count: uint32(v>>countShift) & maxCount,
		Layer: uint16(v>>layerShift) & (1<<layerBits - 1), Zero: v&1 != 0,
	}
}

// Append returns r with one more run behind the others, which it is joined with
// where it can be.
func (r Runs) Append(run Run) Runs {
	if n := r.Len(); n > 0 {
		if last := r.At(n - 1); last.end() == run.First && last.Layer == run.Layer && last.Zero == run.Zero {
			r = r[:len(r)-runBytes]
			run.First, run.Count = last.First, last.Count+run.Count
		}
	}
	for run.Count > maxCount {
		head := run
		head.Count = maxCount
		r = r.put(head)
		run.First, run.Count = run.First+maxCount, run.Count-maxCount
	}
	if run.Count == 0 {
		return r
	}
	return r.put(run)
}

func (r Runs) put(run Run) Runs {
	v := uint64(run.First)<<firstShift | uint64(run.Count)<<countShift | uint64(run.Layer)<<layerShift
	if run.Zero {
		v |= 1
	}
	return binary.LittleEndian.AppendUint64(r, v)
}

// Over returns the runs of both, those of r where they overlap: what a pile has
// whose top r is.
func (r Runs) Over(under Runs) Runs {
	if r.Len() == 0 {
		return under
	}
	merged := make(Runs, 0, len(r)+len(under))
	from := uint32(0) // what lies before it is done
	i := 0
	for k := range r.Len() {
		run := r.At(k)
		// Those that end before this one, as they are, but for the first, of
		// which a part may be done.
		last := i
		for last < under.Len() && under.At(last).end() <= run.First {
			last++
		}
		if i < last {
			merged = merged.Append(cut(under.At(i), from, run.First))
			merged = append(merged, under[(i+1)*runBytes:last*runBytes]...)
		}
		if i = last; i < under.Len() {
			merged = merged.Append(cut(under.At(i), from, run.First))
		}
		merged = merged.Append(run)
		from = run.end()
		for i < under.Len() && under.At(i).end() <= from {
			i++
		}
	}
	if i < under.Len() {
		merged = merged.Append(cut(under.At(i), from, under.At(i).end()))
		merged = append(merged, under[(i+1)*runBytes:]...)
	}
	return merged
}

// after returns the number of the first run that does not end at or before block.
func (r Runs) after(block uint32) int {
	return sort.Search(r.Len(), func(i int) bool { return r.At(i).end() > block })
}

// cut returns the part of a run from start up to end, which may be none.
func cut(r Run, start, end uint32) Run {
	start, end = max(start, r.First), min(end, r.end())
	if start >= end {
		return Run{First: r.First, Layer: r.Layer, Zero: r.Zero}
	}
	r.First, r.Count = start, end-start
	return r
}

// appendMasks appends the blocks of a chunk that starts at first: those that are
// set in blocks, as zeros where they are set in zeros as well.
func (r Runs) appendMasks(first uint32, blocks, zeros uint64, layer int) Runs {
	for blocks != 0 {
		k := bits.TrailingZeros64(blocks)
		zero := zeros>>k&1 != 0
		same := blocks &^ zeros
		if zero {
			same = blocks & zeros
		}
		n := bits.TrailingZeros64(^(same >> k))
		r = r.Append(Run{First: first + uint32(k), Count: uint32(n), Layer: uint16(layer), Zero: zero})
		if k+n == 64 {
			break
		}
		blocks &= ^uint64(0) << (k + n)
	}
	return r
}
