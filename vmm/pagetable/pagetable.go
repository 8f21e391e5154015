// Package pagetable finds a guest's page tables in its memory.
//
// It is for hosts whose KVM keeps page tables of its own as a shadow of the
// guest's. Such a KVM sees what the guest writes to its tables; it does not see
// what the VMM writes to them when it puts memory back, and its shadow would go on
// mapping pages that the guest's tables do not map any more. So a rollback has to
// know which of the pages that it changes are tables.
//
// A guest has one table of the top level for each address space, and the VMM
// knows but the one that a processor uses. The others are found by what all of
// them share: Linux gives each the same upper half, the kernel's. With page table
// isolation (PTI) the page behind each is the top level that user mode runs on.
//
//	CR3 ──▶ top ─┬─ lower half: this process
//	             └─ upper half: the kernel ═══ the same in every other top
//	        top + 1: user mode's
//
// What is found is used to keep a guest's tables right for the guest itself. A
// guest that hides a table from this search harms its own address spaces only:
// shadow tables never map what is not its memory.
package pagetable

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

const (
	pageSize = 4096
	half     = pageSize / 2 // the kernel's part of the top level, from here on
	levels   = 4            // Intel SDM volume 3, 4.5: PML4, PDPT, PD, PT
	present  = 1 << 0
	large    = 1 << 7 // maps memory, in a PDPT or PD
	address  = 0x000f_ffff_ffff_f000
)

// Memory is what a guest's memory holds. Pages are counted by their offset in
// the memory's file; what tables hold are guest physical addresses.
type Memory interface {
	// Page returns the bytes of a page.
	Page(page uint32) []byte
	// Locate returns the page at a guest physical address; false where there
	// is no memory.
	Locate(gpa uint64) (page uint32, ok bool)
	// Pages is how many there are.
	Pages() uint32
}

// Set is a set of pages.
type Set []uint64

// NewSet returns an empty set of a memory's pages.
func NewSet(pages uint32) Set { return make(Set, (pages+63)/64) }

// Has says whether a page is in the set.
func (s Set) Has(page uint32) bool {
	return page/64 < uint32(len(s)) && s[page/64]&(1<<(page%64)) != 0
}

// Add adds a page, which must be one of the memory's.
func (s Set) Add(page uint32) { s[page/64] |= 1 << (page % 64) }

// All calls f for each page, lowest first.
func (s Set) All(f func(page uint32)) {
	for i, word := range s {
		for ; word != 0; word &= word - 1 {
			f(uint32(i*64 + bits.TrailingZeros64(word)))
		}
	}
}

// Tables are the pages of a memory that are page tables.
type Tables struct {
	Tops Set // of the top level, without user mode's
	All  Set // every one
}

// Find returns the tables of all address spaces, given the top level that one
// processor uses: its CR3. tops yields every page that can be one.
func Find(m Memory, cr3 uint64, tops func(yield func(page uint32))) Tables {
	f := finder{m: m, tables: Tables{Tops: NewSet(m.Pages()), All: NewSet(m.Pages())}}
	kernel := f.kernelHalf(cr3)
	key, at := firstEntry(kernel)
	if key == 0 {
		return f.tables
	}
	tops(func(page uint32) {
		b := m.Page(page)
		if binary.LittleEndian.Uint64(b[half+at:]) != key || !bytes.Equal(b[half:], kernel) {
			return
		}
		f.tables.Tops.Add(page)
		f.walk(page, levels)
		if page&1 == 0 && page+1 < m.Pages() {
			f.walk(page+1, levels)
		}
	})
	return f.tables
}

// kernelHalf returns the upper half of the top level that cr3 names. Bit 12 of it
// may say that user mode's is in use, which has no such half.
func (f *finder) kernelHalf(cr3 uint64) []byte {
	for _, gpa := range []uint64{cr3 & address, cr3 & address &^ pageSize} {
		page, ok := f.m.Locate(gpa)
		if !ok {
			continue
		}
		b := f.m.Page(page)[half:]
		if key, _ := firstEntry(b); key != 0 {
			return b
		}
	}
	return nil
}

// firstEntry returns the first entry of a half that is present, and where it is;
// zero without one.
func firstEntry(b []byte) (entry uint64, at int) {
	for at := 0; at < len(b); at += 8 {
		if e := binary.LittleEndian.Uint64(b[at:]); e&present != 0 {
			return e, at
		}
	}
	return 0, 0
}

type finder struct {
	m      Memory
	tables Tables
}

// walk takes a table and those that it refers to. Tables are shared, and a
// hostile guest's may refer to themselves: each is looked at once.
func (f *finder) walk(page uint32, level int) {
	if f.tables.All.Has(page) {
		return
	}
	f.tables.All.Add(page)
	if level == 1 {
		return
	}
	b := f.m.Page(page)
	for at := 0; at < pageSize; at += 8 {
		e := binary.LittleEndian.Uint64(b[at:])
		if e&present == 0 || e&large != 0 && level < levels {
			continue
		}
		if next, ok := f.m.Locate(e & address); ok {
			f.walk(next, level-1)
		}
	}
}
