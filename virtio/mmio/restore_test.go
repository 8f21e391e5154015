package mmio

import (
	"bytes"
	"errors"
	"testing"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/devicetest"
)

// successor returns a rig for a transport with the same resources and a new
// device.
func (r *rig) successor(t *testing.T, s State) *rig {
	t.Helper()
	next := &rig{t: t, dev: &fake{config: []byte{1, 2, 3, 4}}, mem: r.mem, args: r.args}
	next.args.Device = next.dev
	next.args.Raise = func() error { next.raised++; return nil }
	var err error
	if next.Transport, err = Restore(next.args, s); err != nil {
		t.Fatal(err)
	}
	return next
}

// A restored transport shows the same registers and state as the one that was
// saved, whatever its page held, and starts its device paused.
func TestStateRoundTrip(t *testing.T) {
	for name, prepare := range map[string]func(*rig){
		"new":         func(r *rig) {},
		"negotiating": func(r *rig) { r.negotiate(virtio.FeatureVersion1); r.put(regDriverFeatSel, 1) },
		"queue set up": func(r *rig) {
			r.negotiate(virtio.FeatureVersion1)
			r.setQueue(1, 0x10000, 16)
			r.put(regDeviceFeatSel, 1)
		},
		"running":           (*rig).start,
		"config interrupt":  func(r *rig) { r.start(); r.dev.active.Interrupt.ConfigChanged() },
		"needs reset":       func(r *rig) { r.start(); r.dev.active.Interrupt.NeedsReset(errors.New("broken")) },
		"failed to start":   func(r *rig) { r.dev.refuse = errors.New("no"); r.start() },
		"reset once":        func(r *rig) { r.start(); r.put(regStatus, 0) },
		"without the event": func(r *rig) { r.negotiate(virtio.FeatureVersion1); r.setQueue(0, 0x10000, 16); r.put(regStatus, 15) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			prepare(r)
			saved := devicetest.Encode(t, r.State())
			page, status := bytes.Clone(r.page), r.status()
			r.Reset()
			for i := range r.page {
				r.page[i] = 0xa5
			}
			raised := r.raised
			next := r.successor(t, devicetest.Decode[State](t, saved))
			if !bytes.Equal(next.page, page) {
				t.Errorf("register page\n%x, was\n%x", next.page[:0x110], page[:0x110])
			}
			if again := devicetest.Encode(t, next.State()); !bytes.Equal(again, saved) {
				t.Errorf("state\n%x, was\n%x", again, saved)
			}
			runs := status&(statusDriverOK|statusNeedsReset) == statusDriverOK
			if active := next.dev.active; (active != nil) != runs || runs && !active.Paused {
				t.Errorf("activation %+v with status %#x", active, status)
			}
			if next.raised != 0 || next.dev.resumes != 0 {
				t.Error("it has not waited for Resume")
			}
			next.Resume()
			if runs != (next.dev.resumes == 1) {
				t.Errorf("%d resumes", next.dev.resumes)
			}
			// The one before has nothing to say any more.
			before := bytes.Clone(next.page)
			late := interrupt{r.Transport}
			late.ConfigChanged()
			late.NeedsReset(errors.New("late"))
			if !bytes.Equal(next.page, before) || r.raised != raised {
				t.Error("the transport of before writes to the page")
			}
		})
	}
}

// An interrupt of before the save is raised again where the driver may be waiting
// for it, once, and not before Resume.
func TestInterruptsOwed(t *testing.T) {
	const event, plain = virtio.FeatureVersion1 | virtio.FeatureEventIndex, virtio.FeatureVersion1
	for name, c := range map[string]struct {
		features     uint64
		used         uint16 // published
		usedEvent    uint16
		noInterrupt  bool
		config, owed bool
	}{
		"everything taken":                  {features: event, used: 5, usedEvent: 5},
		"one not taken":                     {features: event, used: 5, usedEvent: 4, owed: true},
		"a whole ring not taken":            {features: event, used: 20, usedEvent: 4, owed: true},
		"polled on beyond a ring":           {features: event, used: 21, usedEvent: 4},
		"asked for a later one":             {features: event, used: 5, usedEvent: 9},
		"nothing ever used":                 {features: event},
		"wrapped":                           {features: event, used: 2, usedEvent: 0xfffe, owed: true},
		"configuration":                     {features: event, config: true, owed: true},
		"without event index":               {features: plain, used: 5, owed: true},
		"without event index, not wanted":   {features: plain, used: 5, noInterrupt: true},
		"without event index, config alone": {features: plain, noInterrupt: true, config: true, owed: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.negotiate(c.features)
			r.setQueue(0, 0x10000, 16)
			r.put(regStatus, statusAcknowledge|statusDriver|statusFeaturesOK|statusDriverOK)
			if c.config {
				r.dev.active.Interrupt.ConfigChanged()
			}
			s := r.State()
			s.Queues[0].Ring.Next, s.Queues[0].Ring.Pushed = c.used, c.used
			put16(t, r.mem, 0x12002, c.used)
			put16(t, r.mem, 0x11004+2*16, c.usedEvent)
			if c.noInterrupt {
				put16(t, r.mem, 0x11000, 1)
			}
			r.Reset()
			next := r.successor(t, s)
			if next.raised != 0 {
				t.Fatal("raised before Resume")
			}
			want := 0
			if c.owed {
				want = 1
			}
			for range 2 {
				next.Resume()
				if next.raised != want {
					t.Fatalf("raised %d times, want %d", next.raised, want)
				}
				next.Pause()
			}
		})
	}
}

func put16(t *testing.T, mem *guestmem.Memory, gpa uint64, v uint16) {
	t.Helper()
	b, err := mem.Slice(gpa, 2)
	if err != nil {
		t.Fatal(err)
	}
	guestmem.StoreRelease16(b, 0, v)
}

func TestBrokenState(t *testing.T) {
	r := newRig(t)
	r.start()
	for name, change := range map[string]func(*State){
		"other device":     func(s *State) { s.DeviceID = 1 },
		"queue missing":    func(s *State) { s.Queues = s.Queues[:1] },
		"queue too many":   func(s *State) { s.Queues = append(s.Queues, QueueState{}) },
		"status":           func(s *State) { s.Status = 0x1ff },
		"features":         func(s *State) { s.Acked = ^uint64(0) },
		"no version 1":     func(s *State) { s.Acked = 0 },
		"interrupt bits":   func(s *State) { s.InterruptStatus = 8 },
		"queue size":       func(s *State) { s.Queues[0].Size = 4096 },
		"ring elsewhere":   func(s *State) { s.Queues[0].Ring.Desc = 0 },
		"ring in flight":   func(s *State) { s.Queues[0].Ring.Next = 9 },
		"ring missing":     func(s *State) { s.Queues[0].Ring = nil },
		"ring not ready":   func(s *State) { s.Queues[0].Ready = false },
		"ring of no queue": func(s *State) { s.Status &^= statusDriverOK },
		"other ring":       func(s *State) { s.Queues[0].Ring.EventIndex = false },
		"indirect":         func(s *State) { s.Queues[0].Ring.Indirect = true },
		"not negotiated":   func(s *State) { s.Status &^= statusFeaturesOK },
		"outside of memory": func(s *State) {
			s.Queues[0].Desc, s.Queues[0].Ring.Desc = 1<<40, 1<<40
		},
	} {
		bad := r.State()
		change(&bad)
		args := r.args
		args.Page, args.Device = make([]byte, Size), &fake{config: []byte{1, 2, 3, 4}}
		if _, err := Restore(args, bad); !errors.Is(err, virtio.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each field of a state is changed in turn: there is an error of the right kind,
// or a transport that can be driven, and never a panic.
func TestChangedState(t *testing.T) {
	r := newRig(t)
	r.start()
	devicetest.Changes(t, r.State(), func(t testing.TB, field string, s State) {
		args := r.args
		args.Page, args.Device = make([]byte, Size), &fake{config: []byte{1, 2, 3, 4}}
		back, err := Restore(args, s)
		if err != nil {
			if !errors.Is(err, virtio.ErrState) {
				t.Errorf("%s: %v", field, err)
			}
			return
		}
		next := &rig{Transport: back, t: r.t, dev: args.Device.(*fake), mem: r.mem, args: args}
		next.Resume()
		next.put(regStatus, 0)
		next.start()
		if next.dev.active == nil {
			t.Errorf("%s: a transport that cannot be started", field)
		}
	})
}

// TestGolden: a state of version 1 can be read for ever.
func TestGolden(t *testing.T) {
	r := newRig(t)
	r.start()
	s := r.State()
	s.DeviceSel, s.DriverSel, s.QueueSel, s.ConfigGen = 1, 1, 1, 3
	s.Queues[0].Ring.Next, s.Queues[0].Ring.Pushed = 7, 7
	devicetest.Golden(t, s)
}
