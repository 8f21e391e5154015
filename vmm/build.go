package vmm

import (
	"fmt"
	"os"

	gokvm "github.com/bobuhiro11/gokvm/kvm"

	"thaw/internal/acpi"
	"thaw/internal/eventfd"
	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/virtio"
	"thaw/virtio/mmio"
	"thaw/vmm/boot"
	"thaw/vmm/dirty"
	"thaw/vmm/serial"
)

// build makes everything in the order that is cheapest on pvm hosts: memory
// slots before the interrupt controllers.
func (m *Machine) build() (err error) {
	if m.cfg.Shell {
		m.mem, err = guestmem.Reserve(m.cfg.MemoryBytes)
	} else {
		m.mem, err = guestmem.Map(m.cfg.Memory, m.cfg.MemoryBytes)
	}
	if err != nil {
		return err
	}
	if m.system, err = kvm.Open(m.cfg.KVM); err != nil {
		return err
	}
	for _, c := range []struct {
		number int
		name   string
	}{
		{kvm.CapIRQChip, "in-kernel interrupt controllers"}, {kvm.CapIRQFD, "irqfd"},
		{kvm.CapIoeventfd, "ioeventfd"}, {kvm.CapImmediateRun, "immediate exit"},
	} {
		if m.system.Capability(c.number) == 0 {
			return fmt.Errorf("vmm: no %s: %w", c.name, ErrHost)
		}
	}
	if m.vm, err = m.system.NewVM(); err != nil {
		return err
	}
	keepsLog := false
	if !m.cfg.DirtyRing {
		if keepsLog, err = m.vm.KeepDirtyLog(); err != nil {
			return err
		}
	}
	if err := m.makeSlots(); err != nil {
		return err
	}
	if err := m.setMemory(); err != nil {
		return err
	}
	if err := m.vm.CreateIRQChip(); err != nil {
		return err
	}
	m.phases.done("kvm")
	if err := m.makeVCPUs(); err != nil {
		return err
	}
	tracked := dirty.Config{Memory: m.mem, VM: m.vm, KeepsLog: keepsLog, Handler: m.cfg.Handler, Log: m.cfg.Log}
	if m.cfg.DirtyRing {
		for _, c := range m.vcpus {
			tracked.Rings = append(tracked.Rings, c.kvm.DirtyRing())
		}
	}
	m.track = dirty.New(tracked)
	m.phases.done("vcpus")
	if err := m.connect(); err != nil {
		return err
	}
	m.phases.done("lines")
	if m.cfg.Shell {
		return nil
	}
	if err := m.makeDevices(); err != nil {
		return err
	}
	m.phases.done("devices")
	if err := m.load(); err != nil {
		return err
	}
	m.phases.done("kernel load")
	return nil
}

// setMemory registers RAM and, where the host can, the devices' register
// pages as read-only memory: reads of registers then need no exit.
func (m *Machine) setMemory() error {
	for i, r := range m.mem.Regions() {
		b, err := m.mem.Slice(r.Base, r.Size)
		if err != nil {
			return err
		}
		if err := m.vm.SetMemory(uint32(i), r.Base, b, false); err != nil {
			return err
		}
	}
	if m.plainMMIO() {
		return nil
	}
	return m.vm.SetMemory(registerSlot, registerBase, m.registers, true)
}

func (m *Machine) plainMMIO() bool {
	return m.cfg.PlainMMIO || m.system.Capability(kvm.CapReadonlyMem) == 0
}

func (m *Machine) makeVCPUs() error {
	supported, err := m.supportedCPUID()
	if err != nil {
		return err
	}
	if m.cfg.DirtyRing {
		if limit := m.system.DirtyRingLimit(); limit < dirty.RingBytes {
			return fmt.Errorf("vmm: kvm offers dirty rings of %d bytes: %w", limit, dirty.ErrTracker)
		}
		if err := m.vm.EnableDirtyRing(dirty.RingBytes); err != nil {
			return err
		}
	}
	deadline := m.system.Capability(kvm.CapTSCDeadline) != 0
	for id := range m.cfg.VCPUs {
		k, err := m.vm.NewVCPU(id)
		if err != nil {
			return err
		}
		m.vcpus = append(m.vcpus, &vcpu{m: m, id: id, kvm: k})
		if err := k.SetCPUID(vcpuCPUID(supported, id, m.cfg.VCPUs, deadline)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) supportedCPUID() ([]gokvm.CPUIDEntry2, error) {
	if len(m.cfg.CPUID) > 0 {
		return kvm.DecodeCPUID(m.cfg.CPUID)
	}
	return m.system.SupportedCPUID()
}

// line returns a new event that raises an interrupt line.
func (m *Machine) line(gsi uint32) (*eventfd.FD, error) {
	e, err := m.event()
	if err != nil {
		return nil, err
	}
	return e, m.vm.AddIrqfd(e.Fd(), gsi)
}

// event returns a new event that Close closes.
func (m *Machine) event() (*eventfd.FD, error) {
	e, err := eventfd.New()
	if err == nil {
		m.events = append(m.events, e)
	}
	return e, err
}

// connect makes interrupt lines and kicks.
func (m *Machine) connect() (err error) {
	if m.uartLine, err = m.line(serialGSI); err != nil {
		return err
	}
	m.platform = platform{uart: serial.New(m.console, m.uartLine.Signal), end: m.end}
	if m.eventLine, err = m.line(eventGSI); err != nil {
		return err
	}
	if m.ownLine, err = m.line(generationGSI); err != nil {
		return err
	}
	var kicks virtio.KickGroup
	defer kicks.Start()
	for i := range m.slots {
		if err := m.connectSlot(i, &kicks); err != nil {
			return err
		}
	}
	return nil
}

// load puts kernel, initramfs, command line and tables into guest memory.
func (m *Machine) load() error {
	tables, err := acpi.Build(m.acpiConfig(), boot.TablesAddress)
	if err != nil {
		return err
	}
	cfg := boot.Config{Cmdline: m.cfg.Cmdline, Tables: tables}
	if cfg.Kernel, err = sized(m.cfg.Kernel); err != nil {
		return fmt.Errorf("vmm: stat kernel: %w", err)
	}
	if m.cfg.Initrd != nil {
		initrd, err := sized(m.cfg.Initrd)
		if err != nil {
			return fmt.Errorf("vmm: stat initramfs: %w", err)
		}
		cfg.Initrd = &initrd
	}
	entry, err := boot.Load(m.mem, cfg)
	if err != nil {
		return err
	}
	if err := boot.NewGeneration(m.mem, generationAddress); err != nil {
		return err
	}
	return m.vcpus[0].setBootState(entry)
}

func sized(f *os.File) (boot.File, error) {
	info, err := f.Stat()
	if err != nil {
		return boot.File{}, err
	}
	return boot.File{ReaderAt: f, Size: info.Size()}, nil
}

func (m *Machine) acpiConfig() acpi.Config {
	c := acpi.Config{
		VCPUs: m.cfg.VCPUs, SerialGSI: serialGSI,
		GenerationAddress: generationAddress, GenerationGSI: generationGSI, EventGSI: eventGSI,
		PanicPort: panicPort, SleepPort: sleepPort, ResetPort: keyboardPort, ResetValue: resetCommand,
	}
	for i := range m.slots {
		c.Virtio = append(c.Virtio, acpi.VirtioDevice{
			Base: registerBase + uint32(i)*mmio.Size, Size: mmio.Size, GSI: firstVirtio + uint32(i),
		})
	}
	return c
}
