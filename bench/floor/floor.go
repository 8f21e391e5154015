// Package floor measures the least that an operation on a machine can take on this
// host: the same KVM calls, maps and copies as the product makes, in one process,
// with no daemon, no jail, no devices, no message and no guest that runs.
package floor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
	"thaw/vmm"
)

// Floor has a template to make machines of.
type Floor struct {
	device  *os.File // /dev/kvm
	pages   *os.File // /proc/self/pagemap
	system  *kvm.System
	state   vmm.State
	base    *os.File // memory of the template: a memfd, holes where it is zero
	mapping []byte   // of it
	index   *pageindex.Index
	size    int64
}

// Open reads the template in dir, a snapshot's directory of the daemon's store, which
// is of this daemon's own making: nothing is verified.
func Open(dir string) (_ *Floor, err error) {
	f := &Floor{}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if f.device, err = os.OpenFile("/dev/kvm", os.O_RDWR, 0); err != nil {
		return nil, fmt.Errorf("floor: open KVM: %w", err)
	}
	if f.pages, err = os.Open("/proc/self/pagemap"); err != nil {
		return nil, fmt.Errorf("floor: open page map: %w", err)
	}
	if f.system, err = kvm.Open(f.device); err != nil {
		return nil, err
	}
	if err := f.readState(filepath.Join(dir, "state")); err != nil {
		return nil, err
	}
	return f, f.readMemory(filepath.Join(dir, "memory"))
}

// Close gives all up.
func (f *Floor) Close() {
	if f.mapping != nil {
		_ = unix.Munmap(f.mapping) // the mapping of a memfd
	}
	for _, file := range []*os.File{f.device, f.pages, f.base} {
		if file != nil {
			file.Close()
		}
	}
}

func (f *Floor) readState(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("floor: open state: %w", err)
	}
	defer file.Close()
	sections, err := format.Read(file, format.Limits{})
	if err != nil {
		return fmt.Errorf("floor: read state: %w", err)
	}
	if err := sections.CBOR("machine", &f.state); err != nil {
		return fmt.Errorf("floor: read state: %w", err)
	}
	if len(f.state.VCPUs) != 1 {
		return fmt.Errorf("floor: template has %d vCPUs, not one", len(f.state.VCPUs))
	}
	f.size = int64(f.state.MemoryBytes)
	return nil
}

// readMemory brings the template's memory where the daemon has it: into a memfd, in
// huge pages where it is full.
func (f *Floor) readMemory(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("floor: open memory: %w", err)
	}
	defer file.Close()
	x, err := pageindex.FromHoles(file, f.size)
	if err != nil {
		return err
	}
	if f.base, err = layer.NewMemfd("floor-template", f.size); err != nil {
		return err
	}
	b := make([]byte, 1<<20)
	for _, r := range x.Runs {
		for at, end := int64(r.First)*pageindex.PageSize, int64(r.First+r.Count)*pageindex.PageSize; at < end; at += int64(len(b)) {
			part := b[:min(int64(len(b)), end-at)]
			if _, err := file.ReadAt(part, at); err != nil {
				return fmt.Errorf("floor: read memory: %w", err)
			}
			if _, err := f.base.WriteAt(part, at); err != nil {
				return fmt.Errorf("floor: write memory: %w", err)
			}
		}
	}
	if _, err := layer.Collapse(f.base, f.size); err != nil {
		return err
	}
	if f.index, err = pageindex.FromHoles(f.base, f.size); err != nil {
		return err
	}
	if f.mapping, err = unix.Mmap(int(f.base.Fd()), 0, int(f.size), unix.PROT_READ, unix.MAP_PRIVATE); err != nil {
		return fmt.Errorf("floor: map memory: %w", err)
	}
	return nil
}

// machine is a VM with one processor.
type machine struct {
	f    *Floor
	mem  *guestmem.Memory
	vm   *kvm.VM
	vcpu *kvm.VCPU
}

// newMachine does what a shell does ahead.
func (f *Floor) newMachine() (_ *machine, err error) {
	m := &machine{f: f}
	defer func() {
		if err != nil {
			m.close()
		}
	}()
	if m.mem, err = guestmem.Reserve(uint64(f.size)); err != nil {
		return nil, err
	}
	if m.vm, err = f.system.NewVM(); err != nil {
		return nil, err
	}
	for i, r := range m.mem.Regions() {
		b, err := m.mem.Slice(r.Base, r.Size)
		if err != nil {
			return nil, err
		}
		if err := m.vm.SetMemory(uint32(i), r.Base, b, false); err != nil {
			return nil, err
		}
	}
	if err := m.vm.CreateIRQChip(); err != nil {
		return nil, err
	}
	if m.vcpu, err = m.vm.NewVCPU(0); err != nil {
		return nil, err
	}
	cpuid, err := f.system.SupportedCPUID()
	if err != nil {
		return nil, err
	}
	return m, m.vcpu.SetCPUID(cpuid)
}

func (m *machine) close() error {
	var errs []error
	if m.vcpu != nil {
		errs = append(errs, m.vcpu.Close())
	}
	if m.vm != nil {
		errs = append(errs, m.vm.Close())
	}
	if m.mem != nil {
		errs = append(errs, m.mem.Unmap())
	}
	return errors.Join(errs...)
}

// lay maps what the template has.
func (m *machine) lay() error {
	for _, r := range m.f.index.Runs {
		if err := m.mem.MapFile(m.f.base, uint64(r.First)*pageindex.PageSize, uint64(r.First)*pageindex.PageSize, uint64(r.Count)*pageindex.PageSize); err != nil {
			return err
		}
	}
	return nil
}

// msrTSC is the counter that pvm hosts do not set; its guests read the host's.
const msrTSC = 0x10

// set gives the processor, the interrupt controllers and the clock the saved state.
func (m *machine) set() error {
	s := &m.f.state.VCPUs[0]
	msrs := make([]kvm.MSR, 0, len(s.MSRs))
	for _, r := range s.MSRs {
		if r.Index != msrTSC {
			msrs = append(msrs, r)
		}
	}
	chips := &m.f.state.Chips
	for _, step := range []func() error{
		func() error { return m.vcpu.SetMPState(s.MPState) },
		func() error { return m.vcpu.SetSregs(s.Sregs) },
		func() error { return m.vcpu.SetRegs(s.Regs) },
		func() error { return m.vcpu.SetXCRs(s.XCRs) },
		func() error { return m.vcpu.SetXSAVE(s.XSAVE) },
		func() error { return m.vcpu.SetDebugRegs(s.DebugRegs) },
		func() error { return m.vcpu.SetLAPIC([kvm.LAPICSize]byte(s.LAPIC)) },
		// The guest never runs: a register that this host refuses is not missed.
		func() error { return m.vcpu.SetMSRs(msrs, func(*kvm.RefusedMSR) error { return nil }) },
		func() error { return m.vcpu.SetEvents(s.Events) },
		func() error { return m.vm.SetIRQChip(kvm.PICMaster, chips.PICMaster) },
		func() error { return m.vm.SetIRQChip(kvm.PICSlave, chips.PICSlave) },
		func() error { return m.vm.SetIRQChip(kvm.IOAPIC, chips.IOAPIC) },
		func() error { return m.vm.SetClock(m.f.state.Clock.Nanoseconds) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// get reads the state that a checkpoint has.
func (m *machine) get() error {
	known, err := m.vcpu.StateMSRs()
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { _, err := m.vcpu.MPState(); return err },
		func() error { _, err := m.vcpu.Regs(); return err },
		func() error { _, err := m.vcpu.Sregs(); return err },
		func() error { _, err := m.vcpu.XCRs(); return err },
		func() error { _, err := m.vcpu.XSAVE(); return err },
		func() error { _, err := m.vcpu.DebugRegs(); return err },
		func() error { _, err := m.vcpu.LAPIC(); return err },
		func() error { _, err := m.vcpu.MSRs(known); return err },
		func() error { _, err := m.vcpu.Events(); return err },
		func() error { _, err := m.vm.IRQChip(kvm.PICMaster); return err },
		func() error { _, err := m.vm.IRQChip(kvm.PICSlave); return err },
		func() error { _, err := m.vm.IRQChip(kvm.IOAPIC); return err },
		func() error { _, err := m.vm.Clock(); return err },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// enter calls KVM_RUN, which returns before the guest's first instruction.
func (m *machine) enter() error {
	m.vcpu.SetImmediateExit(true)
	_, err := m.vcpu.Run()
	return err
}

// restored returns a machine with the template in it.
func (f *Floor) restored() (*machine, error) {
	m, err := f.newMachine()
	if err != nil {
		return nil, err
	}
	if err = m.lay(); err == nil {
		err = m.set()
	}
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

// dirty writes n pages: those that the template has first, then others.
func (m *machine) dirty(n int) error {
	host := m.mem.Host()
	write := func(first, end uint32) {
		for ; first < end && n > 0; first, n = first+1, n-1 {
			host[uint64(first)*pageindex.PageSize]++
		}
	}
	for _, r := range m.f.index.Runs {
		write(r.First, r.First+r.Count)
	}
	end := uint32(0)
	for _, r := range m.f.index.Runs {
		write(end, r.First)
		end = r.First + r.Count
	}
	if write(end, m.f.index.Pages); n > 0 {
		return fmt.Errorf("floor: the memory has %d pages too few", n)
	}
	return nil
}
