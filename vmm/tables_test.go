package vmm

import (
	"encoding/binary"
	"slices"
	"testing"

	"thaw/internal/guestmem"
	"thaw/internal/hostinfo"
	"thaw/vmm/pagetable"
)

// Pages of the guest of TestTablesOfNewAddressSpaces.
const (
	bootTop   = 0x9 // where package boot has the top level
	kernelPDP = 0x600
	kernelPD  = 0x601
	// Of address spaces: a top level, behind it user mode's, then a table of each level.
	firstSpace, secondSpace = 0x1800, 0x1900
)

// write writes to memory as a device does: trackers see it.
func write(t *testing.T, m *Machine, b []byte, at uint32) {
	t.Helper()
	if err := m.mem.WriteAt(b, uint64(at)); err != nil {
		t.Fatal(err)
	}
}

// entry writes an entry of a table.
func entry(t *testing.T, m *Machine, table, at, to uint32) {
	t.Helper()
	const present = 7 // writable, user mode's
	write(t, m, binary.LittleEndian.AppendUint64(nil, uint64(to)*guestmem.PageSize|present), table*guestmem.PageSize+8*at)
}

// space makes an address space with the kernel's half, and returns its tables.
func space(t *testing.T, m *Machine, top uint32) []uint32 {
	t.Helper()
	const half = guestmem.PageSize / 2
	write(t, m, m.mem.Host()[bootTop*guestmem.PageSize+half:][:half], top*guestmem.PageSize+half)
	entry(t, m, top, 0, top+2)
	entry(t, m, top+1, 1, top+3) // only user mode's view has it
	entry(t, m, top+2, 5, top+4)
	entry(t, m, top+4, 6, top+5)
	entry(t, m, top+5, 7, 0x300)
	return []uint32{top, top + 1, top + 2, top + 3, top + 4, top + 5}
}

// Tables of address spaces that came after the template are found in each checkpoint, are
// in its file, and are written by the processor when the machine is rolled back to it;
// those of an address space that is gone are forgotten.
func TestTablesOfNewAddressSpaces(t *testing.T) {
	p, shell := templateOf(t, testConfig(t, asmCount), func(m *Machine) {
		m.Pause() // a processor that runs answers nothing, and this guest never leaves KVM
		shadowed, err := m.shadowed()
		if err != nil {
			t.Fatal(err)
		}
		if !shadowed && hostinfo.Detect().Kind == hostinfo.PVM {
			t.Fatal("kvm keeps page tables of its own on every pvm host, and is said not to")
		}
		if !shadowed { // in the lab, where scripts/test-lab counts it
			t.Skip("kvm keeps no page tables of its own for this guest's: there are none to lose")
		}
		entry(t, m, bootTop, 511, kernelPDP)
		entry(t, m, kernelPDP, 510, kernelPD)
		m.Resume()
	})
	m := running(t, shell)
	if _, err := m.Restore(p.image(t)); err != nil {
		t.Fatal(err)
	}
	look := func(what string, tables *pagetable.Tables, has, lacks []uint32) {
		t.Helper()
		if tables == nil {
			t.Fatalf("%s: no tables", what)
		}
		for _, page := range has {
			if !tables.All.Has(page) {
				t.Errorf("%s: page %#x is not known as a table", what, page)
			}
		}
		for _, page := range lacks {
			if tables.All.Has(page) || tables.Tops.Has(page) {
				t.Errorf("%s: page %#x is taken for a table", what, page)
			}
		}
		for _, top := range []uint32{firstSpace, secondSpace} {
			if tables.Tops.Has(top) != slices.Contains(has, top) {
				t.Errorf("%s: top level %#x: %v", what, top, tables.Tops.Has(top))
			}
		}
	}
	save := func(what string, from *point, has, lacks []uint32) *point {
		t.Helper()
		c, _ := checkpoint(t, m, from, SaveSpec{})
		look(what, m.tables, has, lacks)
		_, stored, err := m.readState(c.state)
		if err != nil {
			t.Fatal(err)
		}
		look(what+", stored", stored, has, lacks)
		return c
	}
	kernel := []uint32{bootTop, kernelPDP, kernelPD}
	look("template", m.tables, kernel, []uint32{firstSpace, secondSpace})

	first := space(t, m, firstSpace)
	one := save("one space", p, append(first, kernel...), []uint32{secondSpace})
	second := space(t, m, secondSpace)
	entry(t, m, firstSpace+5, 7, 0x301) // the first maps another page
	two := save("two spaces", one, slices.Concat(first, second, kernel), nil)
	write(t, m, make([]byte, 6*guestmem.PageSize), firstSpace*guestmem.PageSize)
	gone := save("the first is gone", two, append(second, kernel...), first)

	for _, c := range []struct {
		what string
		to   *point
		has  []uint32
	}{{"back to two", two, slices.Concat(first, second, kernel)}, {"back to one", one, append(first, kernel...)}, {"on to the last", gone, append(second, kernel...)}, {"back to one again", one, append(first, kernel...)}} {
		r, err := m.Rollback(c.to.image(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		same(t, c.what, m.mem.Host(), c.to.memory)
		look(c.what, m.tables, c.has, nil)
		if !slices.ContainsFunc(r.Phases, func(p Phase) bool { return p.Name == "write tables" }) {
			t.Errorf("%s: the processor wrote no tables: %v", c.what, r.Phases)
		}
	}
	other := running(t, shell)
	if _, err := other.Restore(two.image(t)); err != nil {
		t.Fatal(err)
	}
	look("restored elsewhere", other.tables, slices.Concat(first, second, kernel), nil)
}
