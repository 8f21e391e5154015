package mmio

import (
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/queue/queuetest"
)

// fake is a device with two queues that notes what happens to it.
type fake struct {
	config    []byte
	active    *virtio.Activation
	activated int
	resets    int
	resumes   int
	refuse    error
	written   []byte
	onReset   func() // called in the middle of a reset
}

func (f *fake) ID() virtio.DeviceID  { return virtio.RNGID }
func (f *fake) Features() uint64     { return 1<<5 | 1<<40 }
func (f *fake) QueueSizes() []uint16 { return []uint16{16, 64} }
func (f *fake) Config() []byte       { return f.config }
func (f *fake) WriteConfig(_ uint32, p []byte) {
	f.written = append(f.written, p...)
}
func (f *fake) Activate(a virtio.Activation) error {
	if f.refuse != nil {
		return f.refuse
	}
	f.active, f.activated = &a, f.activated+1
	return nil
}
func (f *fake) Pause()  {}
func (f *fake) Resume() { f.resumes++ }
func (f *fake) Reset() {
	if f.onReset != nil {
		f.onReset()
	}
	f.active, f.resets = nil, f.resets+1
}

// served is a Handler that tells of each call of Serve.
type served chan struct{}

func (s served) Serve() (bool, error) {
	s <- struct{}{}
	return false, nil
}
func (s served) Waiting() bool { return false }
func (s served) Enable() bool  { return false }
func (s served) Disable()      {}

// rig is a transport with a driver's view of it.
type rig struct {
	*Transport
	t      *testing.T
	dev    *fake
	mem    *guestmem.Memory
	raised int
	errs   []error
	args   Args
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dev: &fake{config: []byte{1, 2, 3, 4}}, mem: queuetest.Memory(t, 4<<20)}
	r.args = Args{
		Device: r.dev, Memory: r.mem, Page: make([]byte, Size),
		Raise: func() error { r.raised++; return nil },
		Log:   func(err error) { r.errs = append(r.errs, err) },
	}
	for range r.dev.QueueSizes() {
		e, err := virtio.NewKick()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		r.args.Kicks = append(r.args.Kicks, e)
	}
	var err error
	if r.Transport, err = New(r.args); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) get(offset uint64) uint32 {
	var p [4]byte
	r.Read(offset, p[:])
	return binary.LittleEndian.Uint32(p[:])
}

func (r *rig) put(offset uint64, v uint32) {
	r.Write(offset, binary.LittleEndian.AppendUint32(nil, v))
}

// negotiate goes to FEATURES_OK with the given features.
func (r *rig) negotiate(features uint64) {
	r.put(regStatus, statusAcknowledge)
	r.put(regStatus, statusAcknowledge|statusDriver)
	for i := range uint32(2) {
		r.put(regDriverFeatSel, i)
		r.put(regDriverFeatures, uint32(features>>(32*i)))
	}
	r.put(regStatus, statusAcknowledge|statusDriver|statusFeaturesOK)
}

// setQueue sets up queue i at base.
func (r *rig) setQueue(i uint32, base uint64, size uint32) {
	r.put(regQueueSel, i)
	r.put(regQueueSize, size)
	r.put(regQueueDescLow, uint32(base))
	r.put(regQueueDescHigh, uint32(base>>32))
	r.put(regQueueDriverLow, uint32(base+0x1000))
	r.put(regQueueDriverHigh, uint32(base>>32))
	r.put(regQueueDeviceLow, uint32(base+0x2000))
	r.put(regQueueDeviceHigh, uint32(base>>32))
	r.put(regQueueReady, 1)
}

func (r *rig) start() {
	r.negotiate(virtio.FeatureVersion1 | virtio.FeatureEventIndex)
	r.setQueue(0, 0x10000, 16)
	r.setQueue(1, 0x20000, 32)
	r.put(regStatus, statusAcknowledge|statusDriver|statusFeaturesOK|statusDriverOK)
}

func TestDiscovery(t *testing.T) {
	r := newRig(t)
	for offset, want := range map[uint64]uint32{
		regMagic: magic, regVersion: 2, regDeviceID: uint32(virtio.RNGID), regVendorID: vendorID,
		regStatus: 0, regInterruptStatus: 0, regSHMLenLow: ^uint32(0), regConfig: 0x04030201,
		regDeviceFeatures: 1<<5 | virtio.FeatureIndirect | virtio.FeatureEventIndex,
		regQueueSizeMax:   16,
	} {
		if got := r.get(offset); got != want {
			t.Errorf("register %#x is %#x, want %#x", offset, got, want)
		}
	}
	r.put(regDeviceFeatSel, 1)
	if got := r.get(regDeviceFeatures); got != 1<<8|1 {
		t.Errorf("upper features %#x", got)
	}
	r.put(regDeviceFeatSel, 2)
	if got := r.get(regDeviceFeatures); got != 0 {
		t.Errorf("features beyond 64: %#x", got)
	}
	r.put(regQueueSel, 7)
	if got := r.get(regQueueSizeMax); got != 0 {
		t.Errorf("size of a queue that does not exist: %d", got)
	}
}

func TestActivation(t *testing.T) {
	r := newRig(t)
	r.start()
	if r.dev.active == nil || r.get(regStatus)&statusNeedsReset != 0 {
		t.Fatalf("not active, status %#x, %v", r.get(regStatus), r.errs)
	}
	if a := r.dev.active; a.Queues[0].Size() != 16 || a.Queues[1].Size() != 32 || a.Features != virtio.FeatureVersion1|virtio.FeatureEventIndex {
		t.Errorf("activation %+v", a)
	}
	if r.get(regInterruptStatus) != interruptUsed {
		t.Error("interrupt status of a running device lacks the used bit")
	}
	r.dev.active.Interrupt.Used()
	r.put(regInterruptACK, interruptUsed)
	if r.raised != 1 || r.get(regInterruptStatus) != interruptUsed {
		t.Errorf("raised %d, status %#x", r.raised, r.get(regInterruptStatus))
	}
	served := make(served, 1)
	r.dev.active.Start(1, served)
	r.put(regQueueNotify, 1)
	select {
	case <-served:
	case <-time.After(10 * time.Second):
		t.Error("no kick")
	}
	// A running queue cannot be moved.
	r.setQueue(0, 0x30000, 8)
	r.put(regStatus, 0)
	if r.dev.resets != 1 || r.get(regStatus) != 0 || r.get(regInterruptStatus) != 0 || r.get(regQueueReady) != 0 {
		t.Errorf("after reset: %d resets, status %#x", r.dev.resets, r.get(regStatus))
	}
	r.start()
	if r.dev.activated != 2 {
		t.Error("cannot be started again")
	}
}

func TestConfigurationInterrupt(t *testing.T) {
	r := newRig(t)
	r.start()
	generation := r.get(regConfigGen)
	r.dev.config[0] = 9
	if r.get(regConfig)&0xff != 1 {
		t.Error("configuration seen before it was announced")
	}
	r.dev.active.Interrupt.ConfigChanged()
	if r.get(regConfig)&0xff != 9 || r.get(regConfigGen) == generation || r.get(regInterruptStatus)&interruptConfig == 0 {
		t.Error("change is not visible")
	}
	r.put(regInterruptACK, interruptConfig|interruptUsed)
	if r.get(regInterruptStatus) != interruptUsed {
		t.Errorf("interrupt status %#x after acknowledging", r.get(regInterruptStatus))
	}
	r.Write(regConfig+1, []byte{7})
	if string(r.dev.written) != "\x07" {
		t.Errorf("device got %v", r.dev.written)
	}
}

func TestMisbehavingDriver(t *testing.T) {
	for name, c := range map[string]struct {
		do         func(r *rig)
		needsReset bool
	}{
		"features that were not offered": {func(r *rig) { r.negotiate(virtio.FeatureVersion1 | 1<<7); r.put(regStatus, 15) }, false},
		"without version 1":              {func(r *rig) { r.negotiate(0); r.put(regStatus, 15) }, false},
		"driver ok at once":              {func(r *rig) { r.put(regStatus, statusDriverOK) }, false},
		"status bits beyond eight":       {func(r *rig) { r.put(regStatus, 0x10f) }, false},
		"queue too long":                 {func(r *rig) { r.negotiate(virtio.FeatureVersion1); r.setQueue(0, 0x10000, 32); r.put(regStatus, 15) }, true},
		"queue size not a power":         {func(r *rig) { r.negotiate(virtio.FeatureVersion1); r.setQueue(0, 0x10000, 3); r.put(regStatus, 15) }, true},
		"queue outside of memory":        {func(r *rig) { r.negotiate(virtio.FeatureVersion1); r.setQueue(0, 1<<40, 16); r.put(regStatus, 15) }, true},
		"device refuses":                 {func(r *rig) { r.dev.refuse = errors.New("no"); r.start() }, true},
		"wide register access":           {func(r *rig) { r.Write(regStatus, make([]byte, 8)); r.Write(regStatus, []byte{4}) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c.do(r)
			if r.dev.active != nil {
				t.Error("device was activated")
			}
			if got := r.get(regStatus)&statusNeedsReset != 0; got != c.needsReset {
				t.Errorf("needs reset: %v, want %v (status %#x)", got, c.needsReset, r.get(regStatus))
			}
			if c.needsReset && len(r.errs) == 0 {
				t.Error("nobody was told why")
			}
			r.put(regStatus, 0)
			r.dev.refuse = nil
			r.start()
			if r.dev.active == nil {
				t.Error("device is lost for good")
			}
		})
	}
}

func TestDeviceGivesUp(t *testing.T) {
	r := newRig(t)
	r.start()
	r.dev.active.Interrupt.NeedsReset(errors.New("broken ring"))
	if r.get(regStatus)&statusNeedsReset == 0 || r.get(regInterruptStatus)&interruptConfig == 0 || len(r.errs) != 1 {
		t.Errorf("status %#x, interrupt %#x, %v", r.get(regStatus), r.get(regInterruptStatus), r.errs)
	}
	r.put(regStatus, 15) // a driver cannot clear it
	if r.get(regStatus)&statusNeedsReset == 0 {
		t.Error("needs-reset was cleared without a reset")
	}
}

// A reset waits for the device's workers. Another processor that goes on
// writing registers meanwhile must not get at the device before that is over.
func TestWritesDuringReset(t *testing.T) {
	r := newRig(t)
	r.start()
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		r.dev.onReset = func() { <-goOn }
		go r.put(regStatus, 0)
		synctest.Wait() // in the middle of the reset
		go func() {
			r.put(regStatus, 0)
			r.start()
		}()
		synctest.Wait()
		if r.dev.activated != 1 {
			t.Error("activated during a reset")
		}
		interrupt{r.Transport}.NeedsReset(errors.New("of a worker that the reset waits for"))
		r.dev.onReset = nil
		close(goOn)
		synctest.Wait()
	})
	if r.dev.active == nil || r.dev.activated != 2 || r.dev.resets != 1 {
		t.Errorf("device after both: active %v, %d activations, %d resets", r.dev.active != nil, r.dev.activated, r.dev.resets)
	}
	if got := r.get(regStatus); got != statusAcknowledge|statusDriver|statusFeaturesOK|statusDriverOK {
		t.Errorf("status %#x", got)
	}
}
