package vmm

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/internal/eventfd"
	"thaw/virtio"
	"thaw/virtio/balloon"
	"thaw/virtio/block"
	"thaw/virtio/mmio"
	"thaw/virtio/net"
	"thaw/virtio/rng"
	"thaw/virtio/vsock"
)

// slot is the place of a virtio device: what KVM has to know of it, which does
// not depend on the device's files. A shell has slots long before devices.
type slot struct {
	name   string // of the device and its counters
	queues int
	line   *eventfd.FD
	kicks  []*virtio.Kick
	page   []byte // registers
}

// devices are the machine's virtio devices, in the order of the slots.
type devices struct {
	list    []device
	host    *vsock.Host // nil: no socket device
	vsock   *vsock.Device
	balloon *balloon.Device
}

// device is one virtio device with the struct that its counters are in.
type device struct {
	virtio.Device
	name    string
	metrics any
}

// close gives up what the devices hold. Preconditions: every device is reset.
func (d *devices) close() error {
	if d.host == nil {
		return nil
	}
	return d.host.Close()
}

// disk is the block device behind a disk of the configuration.
func (d *devices) disk(i int) *block.Device { return d.list[i].Device.(*block.Device) }

// makeSlots plans the devices that the configuration names, in the order in which
// the guest finds them, and makes their register pages.
func (m *Machine) makeSlots() error {
	// The number of queues is that of every device of a kind.
	add := func(name string, d virtio.Device) {
		m.slots = append(m.slots, slot{name: name, queues: len(d.QueueSizes())})
	}
	for i := range m.cfg.Disks {
		add(fmt.Sprint("block", i), (*block.Device)(nil))
	}
	if m.cfg.Net != nil {
		add("net", (*net.Device)(nil))
	}
	if m.cfg.Vsock != nil {
		add("vsock", (*vsock.Device)(nil))
		m.devices.host = vsock.NewHost(m.cfg.Vsock.Listener)
	}
	add("rng", (*rng.Device)(nil))
	if m.cfg.Balloon {
		add("balloon", (*balloon.Device)(nil))
	}
	if len(m.slots) > virtioDevices {
		return fmt.Errorf("vmm: %d virtio devices, at most %d are possible", len(m.slots), virtioDevices)
	}
	pages, err := unix.Mmap(-1, 0, len(m.slots)*mmio.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("vmm: map register pages: %w", err)
	}
	m.registers = pages
	for i := range m.slots {
		m.slots[i].page = pages[i*mmio.Size : (i+1)*mmio.Size : (i+1)*mmio.Size]
	}
	return nil
}

// connectSlot gives slot i its interrupt line and its kicks, which are of a group.
func (m *Machine) connectSlot(i int, kicks *virtio.KickGroup) (err error) {
	s := &m.slots[i]
	if s.line, err = m.line(firstVirtio + uint32(i)); err != nil {
		return err
	}
	base := registerBase + uint64(i)*mmio.Size
	for q := range s.queues {
		k, err := kicks.NewKick()
		if err != nil {
			return err
		}
		s.kicks = append(s.kicks, k)
		if err := m.vm.AddIoeventfd(k.Fd(), base+mmio.NotifyOffset, uint32(q)); err != nil {
			return err
		}
	}
	if m.plainMMIO() {
		return nil
	}
	// Swallows acknowledgements of used buffers: nobody reads it.
	sink, err := m.event()
	if err != nil {
		return err
	}
	return m.vm.AddIoeventfd(sink.Fd(), base+mmio.AckOffset, mmio.AckUsed)
}

// args is what the transport in slot i is made of.
func (m *Machine) args(i int, d virtio.Device) mmio.Args {
	s := &m.slots[i]
	return mmio.Args{Device: d, Memory: m.mem, Kicks: s.kicks, Raise: s.line.Signal, Log: m.cfg.Log, Page: s.page}
}

// makeDevices makes the devices of a machine that is booted.
func (m *Machine) makeDevices() error {
	for i := range m.slots {
		d, err := m.device(i, nil, nil, nil)
		if err != nil {
			return err
		}
		m.devices.list = append(m.devices.list, d)
		t, err := mmio.New(m.args(i, d.Device))
		if err != nil {
			return err
		}
		m.transports = append(m.transports, t)
	}
	return nil
}

// restoreDevices makes the devices from their states. They stay paused.
// Preconditions: devices that were there are reset.
func (m *Machine) restoreDevices(states []DeviceState, image *Image) error {
	if len(image.Disks) != len(m.cfg.Disks) {
		return fmt.Errorf("vmm: restore: %d disks, machine has %d: %w", len(image.Disks), len(m.cfg.Disks), virtio.ErrState)
	}
	old := m.diskFiles
	defer func() { closeFiles(old) }()
	m.diskFiles = nil
	before := m.devices
	m.devices.list, m.transports = nil, nil
	for i := range m.slots {
		d, err := m.device(i, &states[i], image, &before)
		if err != nil {
			return err
		}
		m.devices.list = append(m.devices.list, d)
		t, err := mmio.Restore(m.args(i, d.Device), states[i].Transport)
		if err != nil {
			return err
		}
		m.transports = append(m.transports, t)
	}
	for n := range image.Disks {
		m.diskFiles = append(m.diskFiles, image.Disks[n].Layers...)
		image.Disks[n].Layers = nil
	}
	return nil
}

// device makes the device of slot i: a new one, or the one that s saved, in the place
// of one of before.
func (m *Machine) device(i int, s *DeviceState, image *Image, before *devices) (device, error) {
	name := m.slots[i].name
	errMissing := fmt.Errorf("vmm: restore: state of %s is missing: %w", name, virtio.ErrState)
	switch {
	case i < len(m.cfg.Disks):
		disk := m.cfg.Disks[i]
		o := block.Options{ID: disk.ID, Layers: disk.Layers, ReadOnly: disk.ReadOnly}
		if s == nil {
			d, err := block.New(o)
			return deviceOf(name, d, err)
		}
		if s.Block == nil {
			return device{}, errMissing
		}
		o.Layers = image.Disks[i].Layers
		if len(before.list) > 0 {
			o.Previous = before.disk(i)
		}
		d, err := block.Restore(o, *s.Block)
		return deviceOf(name, d, err)
	case name == "net":
		o := net.Options{MAC: m.cfg.Net.MAC, Offload: true}
		if s == nil {
			d, err := net.New(m.cfg.Net.Tap, o)
			return deviceOf(name, d, err)
		}
		if s.Net == nil {
			return device{}, errMissing
		}
		d, err := net.Restore(m.cfg.Net.Tap, o, *s.Net)
		return deviceOf(name, d, err)
	case name == "vsock":
		o := vsock.Options{CID: m.cfg.Vsock.CID, Host: m.devices.host, Connect: m.cfg.Vsock.Connect}
		d, err := (*vsock.Device)(nil), error(nil)
		if s == nil {
			d, err = vsock.New(o)
		} else if s.Vsock != nil {
			d, err = vsock.Restore(o, *s.Vsock)
		} else {
			err = errMissing
		}
		m.devices.vsock = d
		return deviceOf(name, d, err)
	case name == "rng":
		o := rng.Options{Rate: rng.DefaultRate}
		if s == nil {
			d, err := rng.New(o)
			return deviceOf(name, d, err)
		}
		if s.RNG == nil {
			return device{}, errMissing
		}
		d, err := rng.Restore(o, *s.RNG)
		return deviceOf(name, d, err)
	default:
		o := balloon.Options{MemoryBytes: m.cfg.MemoryBytes, Reclaimer: m.mem}
		d, err := (*balloon.Device)(nil), error(nil)
		if s == nil {
			d, err = balloon.New(o)
		} else if s.Balloon != nil {
			d, err = balloon.Restore(o, *s.Balloon)
		} else {
			err = errMissing
		}
		m.devices.balloon = d
		return deviceOf(name, d, err)
	}
}

// deviceOf is what every constructor of a device ends with.
func deviceOf[T any, D interface {
	virtio.Device
	Metrics() *T
}](name string, d D, err error) (device, error) {
	if err != nil {
		return device{}, err
	}
	return device{d, name, d.Metrics()}, nil
}

// transport returns the device window that holds address, and the offset in
// it; nil where there is none.
func (m *Machine) transport(address uint64) (*mmio.Transport, uint64) {
	i := (address - registerBase) / mmio.Size
	if address < registerBase || i >= uint64(len(m.transports)) {
		return nil, 0
	}
	return m.transports[i], (address - registerBase) % mmio.Size
}

func (m *Machine) readMMIO(address uint64, p []byte) {
	if t, offset := m.transport(address); t != nil {
		t.Read(offset, p)
		return
	}
	for i := range p {
		p[i] = 0xff // nobody answers on the bus
	}
}

func (m *Machine) writeMMIO(address uint64, p []byte) {
	if t, offset := m.transport(address); t != nil {
		t.Write(offset, p)
	}
}

// closeFiles closes those that are there.
func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}
