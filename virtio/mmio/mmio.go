// Package mmio is the virtio transport over memory-mapped registers (virtio
// 1.3 §4.2): it keeps the register page and the status machine and calls the
// device, which never sees a register.
//
//	            status writes by the driver
//	reset ──ACKNOWLEDGE, DRIVER──▶ negotiating ──FEATURES_OK──▶ queue set-up
//	  ▲                                                            │ DRIVER_OK
//	  │ write of 0                                                 ▼
//	  └──────────────── needs reset ◀──device gave up────────── running
//
// # Interrupts without an exit
//
// A driver's interrupt handler reads the interrupt status and writes it back
// to acknowledge: two exits to user space for each interrupt in a plain
// implementation, and the dearest part of a small request. Neither is needed
// here:
//
//   - All registers live in one page, and reads are served from it. The
//     machine registers that page as a read-only memory slot, so that a read
//     does not leave the guest.
//   - The used-buffer bit of the interrupt status stays set while the device
//     runs. A driver that is told so once too often finds its rings empty,
//     which it must bear (virtio 1.3 §2.3). The acknowledging write of that bit
//     alone then means nothing, and an ioeventfd that nobody reads swallows
//     it. The configuration bit stays exact: its acknowledgement has another
//     value and does exit.
package mmio

import (
	"encoding/binary"
	"fmt"
	"sync"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/queue"
)

// Args is what a transport is made of. All host resources: nothing in it
// comes from a guest or a file.
type Args struct {
	Device virtio.Device
	Memory *guestmem.Memory
	// Page is the register page, Size bytes that stay valid. New and Restore write
	// all of it: what a transport before left there does not matter.
	Page []byte
	// Kicks has one event for each queue of the device.
	Kicks []*virtio.Kick
	// Raise raises the device's interrupt line.
	Raise func() error
	// Log is told about what a driver did wrong; may be nil.
	Log func(error)
}

// Transport is one device's register window. Read and Write may be called by
// every vCPU at the same time, the device's interrupts come from its workers.
type Transport struct {
	args    Args
	offered uint64

	mu           sync.Mutex
	page         []byte // protected by mu, as is the rest; the guest may read it at any time
	acked        uint64
	deviceSel    uint32
	driverSel    uint32
	queueSel     uint32
	queues       []queueSetup
	active       bool
	resetting    bool           // the device is being reset, and mu given up for that
	resetDone    *sync.Cond     // of mu
	rings        []virtio.Queue // while active
	configGen    uint32
	interruptBit uint32
	// restored is set until the first Resume after a Restore: interrupts of before
	// the save can be lost.
	restored bool
}

// queueSetup is what the driver wrote for one queue.
type queueSetup struct {
	max   uint16
	size  uint32
	ready bool
	desc  uint64
	avail uint64
	used  uint64
}

// New returns a transport in the state after reset.
func New(args Args) (*Transport, error) {
	sizes := args.Device.QueueSizes()
	if len(args.Page) != Size || len(args.Kicks) != len(sizes) || len(args.Device.Config()) > ConfigSize {
		return nil, fmt.Errorf("mmio: make transport of device %d: %d bytes of registers, %d events for %d queues, %d bytes of configuration",
			args.Device.ID(), len(args.Page), len(args.Kicks), len(sizes), len(args.Device.Config()))
	}
	t := &Transport{
		args: args, page: args.Page,
		offered: args.Device.Features() | virtio.FeatureIndirect | virtio.FeatureEventIndex | virtio.FeatureVersion1,
		queues:  make([]queueSetup, len(sizes)),
	}
	t.resetDone = sync.NewCond(&t.mu)
	for i, size := range sizes {
		t.queues[i].max = size
	}
	clear(t.page)
	t.set(regMagic, magic)
	t.set(regVersion, version)
	t.set(regDeviceID, uint32(args.Device.ID()))
	t.set(regVendorID, vendorID)
	for _, r := range []int{regSHMLenLow, regSHMLenHigh, regSHMBaseLow, regSHMBaseHigh} {
		t.set(r, ^uint32(0)) // no shared memory region, virtio 1.3 §4.2.2
	}
	t.clear()
	return t, nil
}

// Read serves a guest's read of p bytes at offset.
func (t *Transport) Read(offset uint64, p []byte) {
	clear(p)
	if offset < Size {
		t.mu.Lock()
		defer t.mu.Unlock()
		copy(p, t.page[offset:])
	}
}

// Write serves a guest's write of p at offset. What the standard does not
// allow is ignored.
func (t *Transport) Write(offset uint64, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaitReset()
	if offset >= regConfig {
		if offset < Size {
			t.args.Device.WriteConfig(uint32(offset-regConfig), p)
			t.copyConfig()
		}
		return
	}
	if len(p) != 4 {
		return // virtio 1.3 §4.2.2.2: registers are accessed by 32 bits
	}
	t.writeRegister(offset, binary.LittleEndian.Uint32(p))
}

// writeRegister is Write for everything but the configuration space.
// Preconditions: mu is held.
func (t *Transport) writeRegister(offset uint64, v uint32) {
	switch offset {
	case regDeviceFeatSel:
		t.deviceSel = v
		t.showSelected()
	case regDriverFeatSel:
		t.driverSel = v
	case regDriverFeatures:
		t.writeFeatures(v)
	case regQueueSel:
		t.queueSel = v
		t.showSelected()
	case regQueueNotify:
		// Only where no ioeventfd took it.
		if t.active && v < uint32(len(t.rings)) {
			t.args.Kicks[v].Signal()
		}
	case regInterruptACK:
		t.interruptBit &^= v & interruptConfig
		t.showInterrupt()
	case regStatus:
		t.writeStatus(v)
	default:
		t.writeQueue(offset, v)
	}
}

// writeFeatures acknowledges 32 feature bits. Bits that were not offered are
// kept out, and FEATURES_OK is then refused.
func (t *Transport) writeFeatures(v uint32) {
	if t.status()&(statusDriver|statusFeaturesOK) != statusDriver || t.driverSel > 1 {
		return
	}
	shift := 32 * t.driverSel
	t.acked = t.acked&^(0xffff_ffff<<shift) | uint64(v)<<shift
}

// writeQueue sets one field of the selected queue, before it is ready.
func (t *Transport) writeQueue(offset uint64, v uint32) {
	if t.queueSel >= uint32(len(t.queues)) || t.active {
		return
	}
	q := &t.queues[t.queueSel]
	if offset == regQueueReady {
		q.ready = v&1 != 0
		t.showSelected()
		return
	}
	if q.ready {
		return
	}
	switch offset {
	case regQueueSize:
		q.size = v
	case regQueueDescLow:
		setLow(&q.desc, v)
	case regQueueDescHigh:
		setHigh(&q.desc, v)
	case regQueueDriverLow:
		setLow(&q.avail, v)
	case regQueueDriverHigh:
		setHigh(&q.avail, v)
	case regQueueDeviceLow:
		setLow(&q.used, v)
	case regQueueDeviceHigh:
		setHigh(&q.used, v)
	}
}

func setLow(dst *uint64, v uint32)  { *dst = *dst&^0xffff_ffff | uint64(v) }
func setHigh(dst *uint64, v uint32) { *dst = *dst&0xffff_ffff | uint64(v)<<32 }

// writeStatus moves the status machine (virtio 1.3 §3.1.1).
func (t *Transport) writeStatus(v uint32) {
	old := t.status()
	switch {
	case v == 0:
		t.reset()
		return
	case v&^uint32(0xff) != 0 || old&^(statusNeedsReset) != old&^(statusNeedsReset)&v:
		return // a driver must not clear a bit but by reset (§2.1.1)
	}
	if v&statusFeaturesOK != 0 && old&statusFeaturesOK == 0 {
		if t.acked&^t.offered != 0 || t.acked&virtio.FeatureVersion1 == 0 {
			v &^= statusFeaturesOK // the driver reads it back (§3.1.1 step 6)
		}
	}
	if v&statusDriverOK != 0 && old&statusDriverOK == 0 {
		if v&statusFeaturesOK == 0 {
			return
		}
		if err := t.activate(nil, false); err != nil {
			t.log(err)
			v |= statusNeedsReset
		}
	}
	t.set(regStatus, v|old&statusNeedsReset)
}

// activate builds the rings, from saved states where there are some, and
// starts the device, paused where that is wanted.
func (t *Transport) activate(states []*queue.State, paused bool) error {
	rings := make([]virtio.Queue, len(t.queues))
	for i, s := range t.queues {
		rings[i].Kick = t.args.Kicks[i]
		if !s.ready {
			continue
		}
		var err error
		if states != nil && states[i] != nil {
			rings[i].Queue, err = queue.Restore(t.args.Memory, *states[i])
		} else {
			rings[i].Queue, err = t.newRing(s)
		}
		if err != nil {
			return fmt.Errorf("mmio: device %d queue %d: %w", t.args.Device.ID(), i, err)
		}
	}
	err := t.args.Device.Activate(virtio.Activation{
		Memory: t.args.Memory, Features: t.acked, Queues: rings, Interrupt: interrupt{t}, Paused: paused,
	})
	if err != nil {
		return fmt.Errorf("mmio: activate device %d: %w", t.args.Device.ID(), err)
	}
	t.rings, t.active = rings, true
	t.interruptBit |= interruptUsed
	t.showInterrupt()
	return nil
}

func (t *Transport) newRing(s queueSetup) (*queue.Queue, error) {
	if s.size > uint32(s.max) {
		return nil, fmt.Errorf("size %d above the maximum of %d: %w", s.size, s.max, queue.ErrGuest)
	}
	return queue.New(t.args.Memory, queue.Config{
		Size: uint16(s.size), Desc: s.desc, Avail: s.avail, Used: s.used,
		EventIndex: t.acked&virtio.FeatureEventIndex != 0,
		Indirect:   t.acked&virtio.FeatureIndirect != 0,
	})
}

// Reset stops the device and puts the transport back to the state after
// power-on, as a write of zero to the status does. Afterwards it leaves its
// page, kicks and interrupt line alone, so that another transport can have them;
// of a paused device it leaves guest memory alone from the beginning.
func (t *Transport) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaitReset()
	t.reset()
}

// reset gives up mu while it resets the device: the device's workers may be in
// the middle of an interrupt, which takes it, and the reset waits for them.
// Preconditions: mu is held, and no other reset runs.
func (t *Transport) reset() {
	if t.active {
		t.active, t.resetting = false, true
		t.mu.Unlock()
		t.args.Device.Reset()
		t.mu.Lock()
		t.resetting = false
		t.resetDone.Broadcast()
	}
	t.clear()
}

// awaitReset waits for a reset by another processor: until that is over, the
// device is not to be called. Preconditions: mu is held.
func (t *Transport) awaitReset() {
	for t.resetting {
		t.resetDone.Wait()
	}
}

// clear sets what a reset sets.
func (t *Transport) clear() {
	t.rings = nil
	t.acked, t.deviceSel, t.driverSel, t.queueSel, t.interruptBit = 0, 0, 0, 0, 0
	for i := range t.queues {
		t.queues[i] = queueSetup{max: t.queues[i].max}
	}
	t.set(regStatus, 0)
	t.showInterrupt()
	t.showSelected()
	t.copyConfig()
}

// Pause stops the device's workers with every request answered; Resume lets
// them go on.
func (t *Transport) Pause() {
	if t.isActive() {
		t.args.Device.Pause()
	}
}

// Resume ends a Pause, or starts the device of a restored transport: then it
// raises the interrupt line first where the driver may have lost an interrupt.
// Preconditions: guest memory and interrupt controllers have their state.
func (t *Transport) Resume() {
	if t.owes() {
		if err := t.args.Raise(); err != nil {
			t.log(err)
		}
	}
	if t.isActive() {
		t.args.Device.Resume()
	}
}

// owes says, once after a restore, whether the driver may wait for an interrupt
// that was raised before the save. KVM injects what irqfd raises at some later
// time: it can have missed the saved interrupt controller.
func (t *Transport) owes() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	restored := t.restored
	t.restored = false
	switch {
	case !restored:
		return false
	case t.interruptBit&interruptConfig != 0:
		return true // not acknowledged yet
	case !t.active:
		return false
	}
	for _, r := range t.rings {
		if r.Queue != nil && r.Owes() {
			return true
		}
	}
	return false
}

func (t *Transport) isActive() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.awaitReset()
	return t.active
}

func (t *Transport) log(err error) {
	if t.args.Log != nil {
		t.args.Log(err)
	}
}
