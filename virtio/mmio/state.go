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

// State saves the transport. A device that waits for its reset has no rings any
// more: what it left in them follows no rules. Preconditions: paused.
func (t *Transport) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	runs := t.active && t.status()&statusNeedsReset == 0
	s := State{
		DeviceID: uint32(t.args.Device.ID()), Status: t.status(), Acked: t.acked,
		DeviceSel: t.deviceSel, DriverSel: t.driverSel, QueueSel: t.queueSel,
		ConfigGen: t.configGen, InterruptStatus: t.interruptBit,
		Queues: make([]QueueState, len(t.queues)),
	}
	for i, q := range t.queues {
		s.Queues[i] = QueueState{Size: q.size, Ready: q.ready, Desc: q.desc, Avail: q.avail, Used: q.used}
		if runs && t.rings[i].Queue != nil {
			ring := t.rings[i].State()
			s.Queues[i].Ring = &ring
		}
	}
	return s
}

// Restore returns a transport in a saved state. An active device is active again
// but paused: nothing touches guest memory or raises an interrupt until Resume.
// An error wraps virtio.ErrState.
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
		if !q.fits(running, s.Acked) {
			return nil, fmt.Errorf("mmio: restore device %d queue %d: ring and registers differ: %w", s.DeviceID, i, virtio.ErrState)
		}
		t.queues[i] = queueSetup{max: t.queues[i].max, size: q.Size, ready: q.Ready, desc: q.Desc, avail: q.Avail, used: q.Used}
		rings[i] = q.Ring
	}
	t.set(regStatus, s.Status)
	t.set(regConfigGen, s.ConfigGen)
	t.showSelected()
	t.showInterrupt()
	t.restored = true
	if running {
		if err := t.activate(rings, true); err != nil {
			return nil, fmt.Errorf("%w: %w", err, virtio.ErrState)
		}
	}
	return t, nil
}

// fits says whether the ring is that of the registers: there is one for each
// queue of a running device that is ready, and for no other.
func (q *QueueState) fits(running bool, acked uint64) bool {
	r := q.Ring
	if r == nil || !q.Ready || !running {
		return r == nil && !(q.Ready && running)
	}
	return uint32(r.Size) == q.Size && r.Desc == q.Desc && r.Avail == q.Avail && r.Used == q.Used &&
		r.EventIndex == (acked&virtio.FeatureEventIndex != 0) && r.Indirect == (acked&virtio.FeatureIndirect != 0)
}
