package vmm

import (
	"fmt"

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

// devices are the machine's virtio devices, in the order in which the guest
// finds them.
type devices struct {
	list    []device
	vsock   *vsock.Device
	balloon *balloon.Device
}

// device is one virtio device with what its counters are called after, and the
// struct that they are in.
type device struct {
	virtio.Device
	name    string
	metrics any
}

// make makes the devices that the configuration names and their register
// pages.
func (d *devices) make(m *Machine) error {
	for i, disk := range m.cfg.Disks {
		b, err := block.New(block.Options{ID: disk.ID, Layers: disk.Layers, ReadOnly: disk.ReadOnly})
		if err != nil {
			return err
		}
		d.list = append(d.list, device{b, fmt.Sprint("block", i), b.Metrics()})
	}
	if n := m.cfg.Net; n != nil {
		dev, err := net.New(n.Tap, net.Options{MAC: n.MAC, Offload: true})
		if err != nil {
			return err
		}
		d.list = append(d.list, device{dev, "net", dev.Metrics()})
	}
	if v := m.cfg.Vsock; v != nil {
		dev, err := vsock.New(vsock.Options{CID: v.CID, Listener: v.Listener, Connect: v.Connect})
		if err != nil {
			return err
		}
		d.vsock = dev
		d.list = append(d.list, device{dev, "vsock", dev.Metrics()})
	}
	entropy, err := rng.New(rng.Options{Rate: rng.DefaultRate})
	if err != nil {
		return err
	}
	d.list = append(d.list, device{entropy, "rng", entropy.Metrics()})
	if m.cfg.Balloon {
		dev, err := balloon.New(balloon.Options{MemoryBytes: m.cfg.MemoryBytes, Reclaimer: m.mem})
		if err != nil {
			return err
		}
		d.balloon = dev
		d.list = append(d.list, device{dev, "balloon", dev.Metrics()})
	}
	if len(d.list) > virtioDevices {
		return fmt.Errorf("vmm: %d virtio devices, at most %d are possible", len(d.list), virtioDevices)
	}
	pages, err := unix.Mmap(-1, 0, len(d.list)*mmio.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("vmm: map register pages: %w", err)
	}
	m.registers = pages
	return nil
}

// close gives up what make made. Preconditions: every device is reset.
func (d *devices) close() error {
	if d.vsock == nil {
		return nil
	}
	return d.vsock.Close()
}

// connectVirtio gives device i its interrupt line and its kicks.
func (m *Machine) connectVirtio(i int, d virtio.Device) (*mmio.Transport, error) {
	line, err := m.line(firstVirtio + uint32(i))
	if err != nil {
		return nil, err
	}
	base := registerBase + uint64(i)*mmio.Size
	kicks := make([]*eventfd.FD, len(d.QueueSizes()))
	for q := range kicks {
		if kicks[q], err = m.event(); err != nil {
			return nil, err
		}
		if err := m.vm.AddIoeventfd(kicks[q].Fd(), base+mmio.NotifyOffset, uint32(q)); err != nil {
			return nil, err
		}
	}
	if !m.plainMMIO() {
		// Swallows acknowledgements of used buffers: nobody reads it.
		sink, err := m.event()
		if err != nil {
			return nil, err
		}
		if err := m.vm.AddIoeventfd(sink.Fd(), base+mmio.AckOffset, mmio.AckUsed); err != nil {
			return nil, err
		}
	}
	return mmio.New(mmio.Args{
		Device: d, Memory: m.mem, Kicks: kicks, Raise: line.Signal, Log: m.cfg.Log,
		Page: m.registers[i*mmio.Size : (i+1)*mmio.Size : (i+1)*mmio.Size],
	})
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
