package vmm

import (
	"crypto/rand"
	"fmt"

	"thaw/virtio"
	"thaw/virtio/balloon"
	"thaw/virtio/block"
	"thaw/virtio/mmio"
	"thaw/virtio/net"
	"thaw/virtio/rng"
	"thaw/virtio/vsock"
	"thaw/vmm/serial"
)

// State is all of a machine but its memory and its disks' blocks. It comes from
// a snapshot file: untrusted. Host resources are not in it.
type State struct {
	// Instant is a random number of the save, which tells one instant of a machine
	// from every other.
	Instant     []byte        `cbor:"instant"`
	MemoryBytes uint64        `cbor:"memory_bytes"`
	VCPUs       []VCPUState   `cbor:"vcpus"`
	Chips       ChipState     `cbor:"chips"`
	Clock       ClockState    `cbor:"clock"`
	UART        serial.State  `cbor:"uart"`
	Devices     []DeviceState `cbor:"devices"`
}

// DeviceState is a virtio device with its transport. One of the device's states is
// set.
type DeviceState struct {
	Name      string         `cbor:"name"`
	Transport mmio.State     `cbor:"transport"`
	Block     *block.State   `cbor:"block,omitempty"`
	Net       *net.State     `cbor:"net,omitempty"`
	Vsock     *vsock.State   `cbor:"vsock,omitempty"`
	RNG       *rng.State     `cbor:"rng,omitempty"`
	Balloon   *balloon.State `cbor:"balloon,omitempty"`
}

// instantSize is the size of State.Instant, in bytes.
const instantSize = 16

// state saves the machine, in the order that order.go gives. Preconditions:
// paused.
func (m *Machine) state() (State, error) {
	s := State{Instant: make([]byte, instantSize), MemoryBytes: m.cfg.MemoryBytes}
	rand.Read(s.Instant) // never fails, see crypto/rand
	for _, c := range m.vcpus {
		v, err := c.state()
		if err != nil {
			return State{}, err
		}
		s.VCPUs = append(s.VCPUs, v)
	}
	var err error
	if s.Chips, err = m.chipState(); err != nil {
		return State{}, err
	}
	if s.Clock, err = m.clockState(); err != nil {
		return State{}, err
	}
	s.UART = m.platform.uart.State()
	for i, d := range m.devices.list {
		s.Devices = append(s.Devices, d.state(m.transports[i]))
	}
	return s, nil
}

// state saves a device and its transport.
func (d device) state(t *mmio.Transport) DeviceState {
	s := DeviceState{Name: d.name, Transport: t.State()}
	switch dev := d.Device.(type) {
	case *block.Device:
		v := dev.State()
		s.Block = &v
	case *net.Device:
		v := dev.State()
		s.Net = &v
	case *vsock.Device:
		v := dev.State()
		s.Vsock = &v
	case *rng.Device:
		v := dev.State()
		s.RNG = &v
	case *balloon.Device:
		v := dev.State()
		s.Balloon = &v
	}
	return s
}

// check compares a saved machine with this one's shape.
func (m *Machine) check(s *State) error {
	switch {
	case len(s.Instant) != 0 && len(s.Instant) != instantSize:
		return fmt.Errorf("vmm: restore: number of the save has %d bytes: %w", len(s.Instant), virtio.ErrState)
	case s.MemoryBytes != m.cfg.MemoryBytes:
		return fmt.Errorf("vmm: restore: saved with %d bytes of memory, machine has %d: %w", s.MemoryBytes, m.cfg.MemoryBytes, virtio.ErrState)
	case len(s.VCPUs) != len(m.vcpus):
		return fmt.Errorf("vmm: restore: saved with %d processors, machine has %d: %w", len(s.VCPUs), len(m.vcpus), virtio.ErrState)
	case len(s.Devices) != len(m.slots):
		return fmt.Errorf("vmm: restore: saved with %d devices, machine has %d: %w", len(s.Devices), len(m.slots), virtio.ErrState)
	}
	for i, d := range s.Devices {
		if d.Name != m.slots[i].name {
			return fmt.Errorf("vmm: restore: saved with device %.20q as number %d, machine has %q: %w", d.Name, i, m.slots[i].name, virtio.ErrState)
		}
	}
	return nil
}

// setState sets everything that state saved, in the order that order.go gives, on
// a machine whose devices do not run: a shell, or one that is rolled back. The
// devices are made anew, and stay paused. Preconditions: memory is restored.
// Afterwards an error leaves the machine without a valid state.
func (m *Machine) setState(s *State, i *Image) error {
	for n, c := range m.vcpus {
		if err := c.setState(s.VCPUs[n]); err != nil {
			return err
		}
	}
	if err := m.setChipState(s.Chips); err != nil {
		return err
	}
	if err := m.setClockState(s.Clock); err != nil {
		return err
	}
	m.platform.uart = serial.Restore(m.console, m.uartLine.Signal, s.UART)
	return m.restoreDevices(s.Devices, i)
}
