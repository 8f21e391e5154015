package vmm

import (
	"encoding/binary"
	"fmt"
	"slices"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/snapshot/format"
	"thaw/snapshot/pageindex"
	"thaw/vmm/pagetable"
)

// shadowed says whether KVM keeps shadow page tables on this host. Where it does,
// a snapshot names the guest's page tables, for rollbacks (package pagetable).
func (m *Machine) shadowed() (bool, error) {
	known, err := m.vcpus[0].kvm.StateMSRs()
	return slices.Contains(known, kvm.MSRPVM), err
}

// tableMemory is memory as package pagetable looks at it.
type tableMemory struct {
	mem  *guestmem.Memory // for its layout
	page func(page uint32) []byte
}

func (t tableMemory) Page(page uint32) []byte { return t.page(page) }
func (t tableMemory) Pages() uint32           { return uint32(t.mem.Size() / guestmem.PageSize) }

func (t tableMemory) Locate(gpa uint64) (uint32, bool) {
	offset, err := t.mem.Offset(gpa, guestmem.PageSize)
	return uint32(offset / guestmem.PageSize), err == nil
}

// findTables finds the tables in a memory. candidates have every page that can be of
// the top level.
func (m *Machine) findTables(t tableMemory, s *State, candidates ...pagetable.Set) *pagetable.Tables {
	found := pagetable.Find(t, s.VCPUs[0].Sregs.CR3, func(yield func(page uint32)) {
		for _, c := range candidates {
			c.All(yield)
		}
	})
	return &found
}

// coldTables finds the tables of a machine that was booted: all of its memory is in
// its file.
func (m *Machine) coldTables(s *State) (*pagetable.Tables, error) {
	// Not the whole memory: to read a hole would fill it.
	data, err := pageindex.FromHoles(m.cfg.Memory, int64(m.mem.Size()))
	if err != nil {
		return nil, fmt.Errorf("vmm: find page tables: %w", err)
	}
	page := func(page uint32) []byte { return m.mem.Host()[uint64(page)*guestmem.PageSize:][:guestmem.PageSize] }
	return m.findTables(tableMemory{m.mem, page}, s, setOf(data)), nil
}

// setOf returns the pages that an index has runs for.
func setOf(x *pageindex.Index) pagetable.Set {
	set := pagetable.NewSet(x.Pages)
	for _, r := range x.Runs {
		for page := r.First; page < r.End(); page++ {
			set.Add(page)
		}
	}
	return set
}

// addTables adds the section about page tables to a state file: two indexes, each
// after its length (32 bits, little endian), whose sources mean nothing.
func addTables(w *format.Writer, t *pagetable.Tables, pages uint32) error {
	var b []byte
	for _, set := range []pagetable.Set{t.Tops, t.All} {
		x := pageindex.NewBuilder(pages)
		var err error
		set.All(func(page uint32) {
			if err == nil {
				err = x.Add(pageindex.Run{First: page, Count: 1})
			}
		})
		if err != nil {
			return fmt.Errorf("vmm: encode page tables: %w", err)
		}
		e := x.Index().Encode()
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return w.Add(sectionTables, b)
}

// readTables reads the section that addTables wrote; nil where there is none.
func readTables(f *format.File, pages uint32) (*pagetable.Tables, error) {
	if !slices.Contains(f.Names(), sectionTables) {
		return nil, nil
	}
	b, err := f.Section(sectionTables)
	if err != nil {
		return nil, err
	}
	t := &pagetable.Tables{}
	for _, set := range []*pagetable.Set{&t.Tops, &t.All} {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
			return nil, fmt.Errorf("vmm: section of page tables is cut: %w", format.ErrFormat)
		}
		n := binary.LittleEndian.Uint32(b)
		x, err := pageindex.Decode(b[4:4+n], pages)
		if err != nil {
			return nil, fmt.Errorf("vmm: decode page tables: %w: %w", err, format.ErrFormat)
		}
		b = b[4+n:]
		*set = setOf(x)
	}
	return t, nil
}
