package pagetable

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// memory is guest memory from address zero on.
type memory []byte

func (m memory) Page(page uint32) []byte { return m[page*pageSize:][:pageSize] }
func (m memory) Pages() uint32           { return uint32(len(m) / pageSize) }
func (m memory) Locate(gpa uint64) (uint32, bool) {
	return uint32(gpa / pageSize), gpa < uint64(len(m))
}

func (m memory) every(yield func(uint32)) {
	for page := range m.Pages() {
		yield(page)
	}
}

func (m memory) set(page uint32, entry int, to uint32, flags uint64) {
	binary.LittleEndian.PutUint64(m[page*pageSize+uint32(entry)*8:], uint64(to)*pageSize|flags)
}

// twoProcesses is a memory with two address spaces, each with a page for user
// mode behind its top level.
func twoProcesses() (m memory, tops, all []uint32) {
	m = make(memory, 64*pageSize)
	m.set(10, 511, 20, 3) // kernel's, shared
	m.set(12, 511, 20, 3)
	m.set(20, 0, 21, 3)
	m.set(21, 0, 22, 3)
	m.set(21, 1, 0, 0x83) // maps 2 MiB: no table
	m.set(10, 0, 30, 7)
	m.set(30, 1, 31, 7)
	m.set(31, 2, 32, 7)
	m.set(11, 0, 30, 7) // user mode's view of the first
	m.set(11, 1, 33, 7) // and something that only it has
	m.set(12, 0, 40, 7)
	m.set(40, 0, 41, 7)
	m.set(41, 0, 63, 7)
	m.set(32, 0, 50, 7) // a page, not a table
	m.set(41, 1, 1<<30, 7)
	return m, []uint32{10, 12}, []uint32{10, 11, 12, 13, 20, 21, 22, 30, 31, 32, 33, 40, 41, 63}
}

func equal(t *testing.T, what string, s Set, want []uint32) {
	t.Helper()
	var got []uint32
	s.All(func(page uint32) { got = append(got, page) })
	if len(got) != len(want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
	for i := range got {
		if got[i] != want[i] || !s.Has(want[i]) {
			t.Fatalf("%s: got %v, want %v", what, got, want)
		}
	}
}

func TestFind(t *testing.T) {
	m, tops, all := twoProcesses()
	for _, cr3 := range []uint64{10 * pageSize, 12 * pageSize, 11*pageSize | 0x7} {
		found := Find(m, cr3, m.every)
		equal(t, "tops", found.Tops, tops)
		equal(t, "all", found.All, all)
	}
	equal(t, "no memory there", Find(m, 1<<40, m.every).All, nil)
	equal(t, "no table there", Find(m, 50*pageSize, m.every).All, nil)
}

// Whatever is in memory, the search ends and stays inside.
func FuzzFind(f *testing.F) {
	f.Add(uint64(1), uint64(10*pageSize))
	f.Add(uint64(7), ^uint64(0))
	f.Fuzz(func(t *testing.T, seed, cr3 uint64) {
		m, _, _ := twoProcesses()
		r := rand.New(rand.NewPCG(seed, seed))
		for range r.IntN(2000) {
			// Entries that point into memory, at tables or at themselves.
			m.set(r.Uint32N(64), r.IntN(512), r.Uint32N(70), r.Uint64N(256))
		}
		found := Find(m, cr3, m.every)
		found.Tops.All(func(page uint32) {
			if !found.All.Has(page) {
				t.Errorf("top %d is no table", page)
			}
		})
	})
}
