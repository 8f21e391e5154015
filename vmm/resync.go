package vmm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/internal/pagemap"
	"thaw/snapshot/memimage"
)

// On hosts whose KVM keeps shadow page tables, what the VMM writes to a guest's
// tables goes unseen (package pagetable). A rollback therefore has the changed
// entries written by the first processor itself, in a program made for it: KVM
// emulates such writes, and drops what its shadow has of each.
//
// The alternative is to have KVM forget its whole shadow (VM.ResetMemory), which
// is always right and costs the guest a fault for each page that it uses next: it
// is what happens when there are too many entries.
//
//	copy back all but tables ──▶ few entries? ──yes──▶ program ──▶ tables right?
//	                                  │ no                            │ no
//	                                  └──▶ copy the tables too, forget ◀──┘

// Where the program is in guest memory: below 1 MiB, which Linux leaves alone.
// Everything there is put back afterwards.
const (
	programTables = 0xa000  // PML4, PML4 once more, PDPT
	programPDs    = 0x30000 // one for each GiB
	programCode   = 0x50000
	programData   = 0x70000
	programEnd    = 0x9f000
	programPort   = 0x80 // written to at the end
)

// maxEntries is how many entries a program writes at most: some 20 bytes and one to
// three microseconds each, for fewer than that forgetting costs more.
const maxEntries = 3000

// putBackMemory makes the machine's image the content of its memory again. changed
// and exact are as changed returns them.
func (m *Machine) putBackMemory(changed []pagemap.Range, exact bool, p *phases) (memimage.PutBack, error) {
	var table func(page uint32) bool
	if m.tables != nil {
		table = m.tables.All.Has
	}
	done, err := m.image.Rollback(m.mem, changed, exact, table)
	p.done("memory")
	if err != nil || m.tables == nil {
		return done, err
	}
	if !done.Dropped && len(done.Entries) <= maxEntries {
		if len(done.Entries) == 0 {
			return done, nil
		}
		if err := m.rewrite(done.Entries); err != nil {
			return done, err
		}
		p.done("write tables")
		m.putBackLow()
		if m.written(done.Entries) {
			return done, nil
		}
		m.cfg.Log(fmt.Errorf("vmm: roll back: the processor did not write all %d entries", len(done.Entries)))
	}
	for _, e := range done.Entries {
		binary.LittleEndian.PutUint64(m.mem.Host()[e.Offset:], e.Value)
	}
	for slot := range m.mem.Regions() {
		if err := m.vm.ResetMemory(uint32(slot)); err != nil {
			return done, err
		}
	}
	p.done("forget tables")
	return done, nil
}

// putBackLow makes the memory below 1 MiB the image's again, where the program
// was.
func (m *Machine) putBackLow() {
	for page := uint32(0); page < 0x10_0000/guestmem.PageSize; page++ {
		now := m.mem.Host()[page*guestmem.PageSize:][:guestmem.PageSize]
		if then := m.image.Page(page); !bytes.Equal(now, then) {
			copy(now, then)
		}
	}
}

// written says whether the entries are as they should be.
func (m *Machine) written(entries []memimage.Entry) bool {
	for _, e := range entries {
		if binary.LittleEndian.Uint64(m.mem.Host()[e.Offset:]) != e.Value {
			return false
		}
	}
	return true
}

// rewrite has the first processor write the entries. Preconditions: paused; the
// processor's state and the memory below 1 MiB are set anew afterwards.
func (m *Machine) rewrite(entries []memimage.Entry) error {
	code, data, err := m.program(entries)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		at uint64
		b  []byte
	}{{programTables, identityTables()}, {programPDs, identityPDs()}, {programCode, code}, {programData, data}} {
		// Not WriteAt: nothing of this is to be seen as dirty.
		b, err := m.mem.Slice(w.at, uint64(len(w.b)))
		if err != nil {
			return err
		}
		copy(b, w.b)
	}
	c := m.vcpus[0]
	if err := c.enterProgram(); err != nil {
		return err
	}
	var failed error
	m.onThread(c, func() { failed = c.runProgram() })
	return failed
}

// program returns code that writes the entries, in ascending order, and ends with a
// write to a port. It copies each row of neighbours from data by one instruction,
// which KVM decodes once.
func (m *Machine) program(entries []memimage.Entry) (code, data []byte, err error) {
	le := binary.LittleEndian
	code = le.AppendUint32(append(code, 0xbe), programData) // mov esi, imm32
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].Offset == entries[0].Offset+8*uint64(n) && entries[n].Offset%guestmem.PageSize != 0 {
			n++
		}
		gpa, err := m.mem.Address(entries[0].Offset)
		if err != nil {
			return nil, nil, err
		}
		code = le.AppendUint64(append(code, 0x48, 0xbf), gpa) // mov rdi, imm64
		if n > 1 {
			code = le.AppendUint32(append(code, 0xb9), uint32(n)) // mov ecx, imm32
			code = append(code, 0xf3)                             // rep
		}
		code = append(code, 0x48, 0xa5) // movsq
		for _, e := range entries[:n] {
			data = le.AppendUint64(data, e.Value)
		}
		entries = entries[n:]
	}
	code = append(code, 0xe6, programPort) // out port, al
	if len(code) > programData-programCode || len(data) > programEnd-programData {
		return nil, nil, fmt.Errorf("vmm: program of %d bytes for %d is too long", len(code), len(data))
	}
	return code, data, nil
}

// identityTables maps all of a machine's memory at its own addresses, by pages of
// 2 MiB.
//
// On pvm hosts bit 12 of CR3 tells kernel mode from user mode, and the host may use
// the other page of the pair: both are the same here.
func identityTables() []byte {
	le := binary.LittleEndian
	const writable = 7 // and present, and user mode's: a native guest's kernel runs there
	b := make([]byte, 3*guestmem.PageSize)
	for top := range 2 {
		le.PutUint64(b[top*guestmem.PageSize:], programTables+2*guestmem.PageSize|writable)
	}
	for i := range uint64(programGiBs) {
		le.PutUint64(b[2*guestmem.PageSize+8*i:], programPDs+i*guestmem.PageSize|writable)
	}
	return b
}

// programGiBs covers MaxMemory and the hole below 4 GiB.
const programGiBs = MaxMemory>>30 + 1

func identityPDs() []byte {
	const entry = 0x87 // present, writable, user, large
	b := make([]byte, programGiBs*guestmem.PageSize)
	for i := range uint64(len(b) / 8) {
		binary.LittleEndian.PutUint64(b[8*i:], i<<21|entry)
	}
	return b
}

// enterProgram puts the processor in front of the program: 64-bit mode, emulated,
// without interrupts.
func (c *vcpu) enterProgram() error {
	s, err := c.kvm.Sregs()
	if err != nil {
		return err
	}
	if err := c.standAlone(); err != nil {
		return err
	}
	setFlat64(&s, programTables)
	if err := c.kvm.SetSregs(s); err != nil {
		return err
	}
	if err := c.kvm.SetMPState(kvm.MPRunnable); err != nil {
		return err
	}
	if err := c.kvm.SetRegs(kvm.Regs{RIP: programCode, RFLAGS: 2}); err != nil {
		return err
	}
	// An interrupt that was on its way when the processor stopped would still be
	// delivered, with interrupts off.
	return c.kvm.SetEvents(kvm.Events{})
}

// standAlone has the processor leave native mode, and KVM forget where the guest wants
// its clock and its stolen time written: it writes them whenever the processor runs, to
// memory that has been put back. The state that is set afterwards names the places again.
func (c *vcpu) standAlone() error {
	known, err := c.kvm.StateMSRs()
	if err != nil {
		return err
	}
	var off []kvm.MSR
	for _, index := range append([]uint32{kvm.MSRPVM}, kvm.ReportMSRs...) {
		if slices.Contains(known, index) {
			off = append(off, kvm.MSR{Index: index})
		}
	}
	if err := c.kvm.SetMSRs(off, func(e *kvm.RefusedMSR) error { return e }); err != nil {
		return fmt.Errorf("vmm: leave native mode, stop KVM's reports to the guest: %w", err)
	}
	return nil
}

// runProgram runs until the program's end. It is called on the processor's thread.
// A program that does not end is interrupted by Stop or by the daemon's kill.
func (c *vcpu) runProgram() error {
	c.kvm.SetImmediateExit(false)
	for {
		interrupted, err := c.kvm.Run()
		if err != nil {
			return err
		}
		if interrupted {
			if c.m.ending() {
				return fmt.Errorf("vmm: stopped in a rollback")
			}
			continue
		}
		if c.kvm.ExitReason() != kvm.ExitIO {
			return fmt.Errorf("vmm: program to write page tables: %s", c.kvm.Describe())
		}
		io, err := c.kvm.PortIO()
		if err != nil || io.Port != programPort {
			return fmt.Errorf("vmm: program to write page tables: port %#x: %w", io.Port, err)
		}
		return nil
	}
}
