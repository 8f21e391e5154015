package disk

import (
	"math/bits"
	"sync/atomic"
)

// owner says where a block's bytes are: in a layer, or nowhere because they
// are zero by that layer's word. Zero is the bottom layer.
type owner uint32

func dataIn(layer int) owner { return owner(layer << 1) }

func zeroIn(layer int) owner { return owner(layer<<1 | 1) }

func (o owner) layer() int { return int(o >> 1) }

func (o owner) zero() bool { return o&1 != 0 }

// chunkBlocks is how many blocks one chunk of the index covers: 256 KiB of
// disk, and a bit for each in a word.
const chunkBlocks = 64

// chunk has the owners of its blocks. Readers use owners only; the rest belongs to
// who writes the disk.
type chunk struct {
	owners [chunkBlocks]atomic.Uint32
	under  *[chunkBlocks]owner // what was under each claimed block
}

// bottomChunk stands for every chunk in which no layer but the bottom holds
// anything. It is never changed.
var bottomChunk chunk

// index has the owner of every block. A chunk is made of the runs when its blocks
// are first used, so an index costs nothing to restore, and is as small as what
// is used. Blocks are read by any goroutine while one claims.
type index struct {
	chunks []atomic.Pointer[chunk]
	// claims are the blocks that the top took, a word for each chunk: what Drop
	// puts back and State saves. They are not in the chunks, because looking at
	// thousands of those, far from each other, takes a pause too long.
	claims  []uint64
	zeros   []uint64 // those of them that are zeros
	claimed []uint64 // a bit for each word of claims that is not zero
	count   int      // claims in all
	// below are the owners without the claims: they change when the top does.
	// What they say of chunks with claims does not count until then.
	below Runs
}

func newIndex(size int64) *index {
	blocks := (size + BlockSize - 1) / BlockSize
	chunks := (blocks + chunkBlocks - 1) / chunkBlocks
	return &index{
		chunks: make([]atomic.Pointer[chunk], chunks), claims: make([]uint64, chunks), zeros: make([]uint64, chunks),
		claimed: make([]uint64, (chunks+63)/64),
	}
}

func (x *index) owner(block int64) owner {
	return owner(x.chunk(block / chunkBlocks).owners[block%chunkBlocks].Load())
}

// chunk returns chunk n for reading.
func (x *index) chunk(n int64) *chunk {
	place := &x.chunks[n]
	if c := place.Load(); c != nil {
		return c
	}
	place.CompareAndSwap(nil, x.build(n))
	return place.Load()
}

// build makes chunk n of the runs.
func (x *index) build(n int64) *chunk {
	first, end := uint32(n*chunkBlocks), uint32((n+1)*chunkBlocks)
	i := x.below.after(first)
	if i == x.below.Len() || x.below.At(i).First >= end {
		return &bottomChunk
	}
	c := new(chunk)
	for ; i < x.below.Len(); i++ {
		r := x.below.At(i)
		for block := max(first, r.First); block < min(end, r.end()); block++ {
			c.owners[block-first].Store(uint32(r.owner()))
		}
		if r.end() >= end {
			break
		}
	}
	return c
}

// own returns the chunk of a block, for a change.
func (x *index) own(block int64) *chunk {
	n := block / chunkBlocks
	c := x.chunk(n)
	if c == &bottomChunk {
		c = new(chunk)
		x.chunks[n].Store(c)
	}
	return c
}

// claim makes o, which names the top, the owner of block.
func (x *index) claim(block int64, o owner) {
	c, n, k := x.own(block), block/chunkBlocks, block%chunkBlocks
	bit := uint64(1) << k
	if x.claims[n]&bit == 0 {
		if c.under == nil {
			c.under = new([chunkBlocks]owner)
		}
		c.under[k] = owner(c.owners[k].Load())
		x.claims[n] |= bit
		x.claimed[n/64] |= 1 << (n % 64)
		x.count++
	}
	if x.zeros[n] &^= bit; o.zero() {
		x.zeros[n] |= bit
	}
	c.owners[k].Store(uint32(o))
}

// each calls f with the number of every chunk that has claims.
func (x *index) each(f func(n int)) {
	for w, word := range x.claimed {
		for ; word != 0; word &= word - 1 {
			f(w*64 + bits.TrailingZeros64(word))
		}
	}
}

// maxAhead bounds the runs for which top makes room ahead.
const maxAhead = 1 << 14

// top returns the claims as runs, in the given layer.
func (x *index) top(layer int) Runs {
	if x.count == 0 {
		return nil
	}
	r := make(Runs, 0, min(x.count, maxAhead)*runBytes)
	x.each(func(n int) { r = r.appendMasks(uint32(n*chunkBlocks), x.claims[n], x.zeros[n], layer) })
	return r
}

// settle ends the claims: the blocks stay what they are.
func (x *index) settle(layer int) {
	x.below = x.top(layer).Over(x.below)
	x.forget()
}

// drop gives every claimed block back to its owner before.
func (x *index) drop() {
	x.each(func(n int) {
		c := x.chunks[n].Load()
		for word := x.claims[n]; word != 0; word &= word - 1 {
			k := bits.TrailingZeros64(word)
			c.owners[k].Store(uint32(c.under[k]))
		}
	})
	x.forget()
}

func (x *index) forget() {
	x.each(func(n int) { x.claims[n], x.zeros[n] = 0, 0 })
	clear(x.claimed)
	x.count = 0
}

// run returns the owner of the byte at off and how many bytes from there, at
// most limit, have the same owner.
func (x *index) run(off, limit int64) (owner, int64) {
	block := off / BlockSize
	o := x.owner(block)
	n := BlockSize - off%BlockSize
	for n < limit {
		block++
		if x.owner(block) != o {
			break
		}
		n += BlockSize
	}
	return o, min(n, limit)
}
