package disk

import "sync/atomic"

// owner says where a block's bytes are: in a layer, or nowhere because they
// are zero by that layer's word. Zero is the bottom layer.
type owner uint32

func dataIn(layer int) owner { return owner(layer << 1) }

func zeroIn(layer int) owner { return owner(layer<<1 | 1) }

func (o owner) layer() int { return int(o >> 1) }

func (o owner) zero() bool { return o&1 != 0 }

// chunkBlocks is how many blocks one chunk of the index covers: 256 KiB of
// disk. Small ones keep State, which a pause waits for, from looking at many
// blocks that nobody wrote.
const chunkBlocks = 64

type chunk [chunkBlocks]atomic.Uint32

// index has the owner of every block. Chunks in which no layer but the bottom
// holds anything do not exist, so the index of a large disk is as small as
// what was written. Blocks are read by any goroutine while one claims.
type index struct {
	chunks []atomic.Pointer[chunk]
	// claims are the blocks that the top took and what was under each: what
	// Drop puts back. A block is in it once.
	claims []claim
}

type claim struct {
	block uint32
	under owner
}

func newIndex(size int64) *index {
	blocks := (size + BlockSize - 1) / BlockSize
	return &index{chunks: make([]atomic.Pointer[chunk], (blocks+chunkBlocks-1)/chunkBlocks)}
}

func (x *index) owner(block int64) owner {
	c := x.chunks[block/chunkBlocks].Load()
	if c == nil {
		return 0
	}
	return owner(c[block%chunkBlocks].Load())
}

func (x *index) set(block int64, o owner) {
	c := x.chunks[block/chunkBlocks].Load()
	if c == nil {
		if o == 0 {
			return
		}
		c = new(chunk)
		x.chunks[block/chunkBlocks].Store(c)
	}
	c[block%chunkBlocks].Store(uint32(o))
}

// claim makes o, which names the top, the owner of block.
func (x *index) claim(block int64, o owner) {
	if was := x.owner(block); was.layer() != o.layer() {
		x.claims = append(x.claims, claim{uint32(block), was})
	}
	x.set(block, o)
}

// drop gives every claimed block back to its owner before.
func (x *index) drop() {
	for _, c := range x.claims {
		x.set(int64(c.block), c.under)
	}
	x.claims = x.claims[:0]
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
