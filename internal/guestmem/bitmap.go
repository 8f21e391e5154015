package guestmem

import (
	"math/bits"
	"sync/atomic"
)

// Bitmap has one bit for each page of a guest's memory, counted by offset in
// the backing file. All methods may be called from any goroutine.
type Bitmap struct {
	words []atomic.Uint64
	pages uint64
}

// NewBitmap returns a clear bitmap for size bytes of memory.
func NewBitmap(size uint64) *Bitmap {
	pages := (size + PageSize - 1) / PageSize
	return &Bitmap{words: make([]atomic.Uint64, (pages+63)/64), pages: pages}
}

// SetRange marks the pages that hold the n bytes at offset; what lies beyond
// the end is ignored.
func (b *Bitmap) SetRange(offset, n uint64) {
	if n == 0 {
		return
	}
	last := min((offset+n-1)/PageSize, b.pages-1)
	for page := offset / PageSize; page <= last; page++ {
		b.words[page/64].Or(1 << (page % 64))
	}
}

// Drain calls f with the number of each marked page, lowest first, and clears
// its mark.
func (b *Bitmap) Drain(f func(page uint64)) {
	for i := range b.words {
		word := b.words[i].Swap(0)
		for word != 0 {
			bit := bits.TrailingZeros64(word)
			word &^= 1 << bit
			f(uint64(i*64 + bit))
		}
	}
}

// Count returns how many pages are marked.
func (b *Bitmap) Count() int {
	n := 0
	for i := range b.words {
		n += bits.OnesCount64(b.words[i].Load())
	}
	return n
}
