package mmio

import (
	"fmt"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// State is a transport's registers and rings, without the device's own state.
// It comes from a snapshot file: untrusted.
type State struct {
	DeviceID        uint32       `cbor:"device_id"`
	Status          uint32       `cbor:"status"`
	Acked           uint64       `cbor:"acked"`
	DeviceSel       uint32       `cbor:"device_sel"`
	DriverSel       uint32       `cbor:"driver_sel"`
	QueueSel        uint32       `cbor:"queue_sel"`
	ConfigGen       uint32       `cbor:"config_gen"`
	InterruptStatus uint32       `cbor:"interrupt_status"`
	Queues          []QueueState `cbor:"queues"`
}

// QueueState is what the driver set up for one queue and, on an active
// device, where its ring stands.
type QueueState struct {
	Size  uint32       `cbor:"size"`
	Ready bool         `cbor:"ready"`
	Desc  uint64       `cbor:"desc"`
	Avail uint64       `cbor:"avail"`
	Used  uint64       `cbor:"used"`
	Ring  *queue.State `cbor:"ring,omitempty"`
}

// State saves the transport. Preconditions: paused.
func (t *Transport) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := State{
		DeviceID: uint32(t.args.Device.ID()), Status: t.status(), Acked: t.acked,
		DeviceSel: t.deviceSel, DriverSel: t.driverSel, QueueSel: t.queueSel,
		ConfigGen: t.configGen, InterruptStatus: t.interruptBit,
		Queues: make([]QueueState, len(t.queues)),
	}
	for i, q := range t.queues {
		s.Queues[i] = QueueState{Size: q.size, Ready: q.ready, Desc: q.desc, Avail: q.avail, Used: q.used}
		if t.active && t.rings[i].Queue != nil {
			ring := t.rings[i].State()
			s.Queues[i].Ring = &ring
		}
	}
	return s
}

// Restore returns a transport in a saved state; an active device is started
// again. An error wraps virtio.ErrState, or queue.ErrGuest where a ring is bad.
func Restore(args Args, s State) (*Transport, error) {
	t, err := New(args)
	if err != nil {
		return nil, err
	}
	running := s.Status&statusDriverOK != 0 && s.Status&statusNeedsReset == 0
	switch {
	case s.DeviceID != uint32(args.Device.ID()):
		err = fmt.Errorf("saved for device %d", s.DeviceID)
	case len(s.Queues) != len(t.queues):
		err = fmt.Errorf("saved with %d queues of %d", len(s.Queues), len(t.queues))
	case s.Status&^0xff != 0 || running && s.Status&statusFeaturesOK == 0:
		err = fmt.Errorf("status %#x", s.Status)
	case s.Status&statusFeaturesOK != 0 && (s.Acked&^t.offered != 0 || s.Acked&virtio.FeatureVersion1 == 0):
		err = fmt.Errorf("features %#x, offered are %#x", s.Acked, t.offered)
	case s.InterruptStatus&^(interruptUsed|interruptConfig) != 0:
		err = fmt.Errorf("interrupt status %#x", s.InterruptStatus)
	}
	if err != nil {
		return nil, fmt.Errorf("mmio: restore device %d: %w: %w", args.Device.ID(), err, virtio.ErrState)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acked, t.deviceSel, t.driverSel, t.queueSel = s.Acked, s.DeviceSel, s.DriverSel, s.QueueSel
	t.configGen, t.interruptBit = s.ConfigGen, s.InterruptStatus
	rings := make([]*queue.State, len(s.Queues))
	for i, q := range s.Queues {
		if q.Size > uint32(t.queues[i].max) && q.Ready {
			return nil, fmt.Errorf("mmio: restore device %d queue %d: size %d: %w", s.DeviceID, i, q.Size, virtio.ErrState)
		}
		if r := q.Ring; r != nil && (!q.Ready || uint32(r.Size) != q.Size || r.Desc != q.Desc || r.Avail != q.Avail || r.Used != q.Used) {
			return nil, fmt.Errorf("mmio: restore device %d queue %d: ring and registers differ: %w", s.DeviceID, i, virtio.ErrState)
		}
		t.queues[i] = queueSetup{max: t.queues[i].max, size: q.Size, ready: q.Ready, desc: q.Desc, avail: q.Avail, used: q.Used}
		rings[i] = q.Ring
	}
	t.set(regStatus, s.Status)
	t.set(regConfigGen, s.ConfigGen)
	t.showSelected()
	t.showInterrupt()
	if running {
		if err := t.activate(rings); err != nil {
			return nil, err
		}
	}
	return t, nil
}
