// Package devicetest checks what every device promises by virtio.Device and by
// its saved state. Each device package runs Conformance on itself.
package devicetest

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"thaw/virtio"
)

// Device is a device whose saved state is an S.
type Device[S any] interface {
	virtio.Device
	State() S
}

// Case is what Conformance has to know about a device.
type Case[S any] struct {
	// Make returns a new device, and what restores a state of it on the same
	// resources of the host.
	Make func(t testing.TB) (Device[S], func(S) (Device[S], error))
	// Request makes one request available that the device answers without the
	// host's help, and returns the number of its queue.
	Request func(*Rig) int
	// Broken has changes, by name, to a state that it must not be restored with.
	Broken map[string]func(*S)
}

// quiet is how long a device is watched that should do nothing: several times
// what a worker needs to wake up.
const quiet = 20 * time.Millisecond

// Conformance runs the checks as subtests.
func Conformance[S any](t *testing.T, c Case[S]) {
	t.Run("state survives", func(t *testing.T) { c.survives(t) })
	t.Run("broken state", func(t *testing.T) { c.broken(t) })
	t.Run("calls twice", func(t *testing.T) { c.twice(t) })
	t.Run("silence", func(t *testing.T) { c.silence(t) })
}

// survives saves a device that has worked, by way of bytes, and goes on with the
// restored one on the same queues.
func (c Case[S]) survives(t *testing.T) {
	dev, restore := c.Make(t)
	r := NewRig(t, dev)
	r.Activate(dev)
	r.Do(c.Request)
	dev.Pause()
	saved := overWire(t, dev.State())
	if again := dev.State(); !reflect.DeepEqual(saved, again) {
		t.Errorf("state\n%+v, by way of bytes\n%+v", again, saved)
	}
	states := r.States()
	dev.Reset()

	back, err := restore(saved)
	if err != nil {
		t.Fatal(err)
	}
	if again := back.State(); !reflect.DeepEqual(again, saved) {
		t.Errorf("restored state\n%+v, was\n%+v", again, saved)
	}
	if back.ID() != dev.ID() || back.Features() != dev.Features() || !reflect.DeepEqual(back.QueueSizes(), dev.QueueSizes()) {
		t.Error("the restored device is another one to its driver")
	}
	r.ActivateWith(back, states)
	r.Do(c.Request)
}

// overWire encodes and decodes a state, as a snapshot does.
func overWire[S any](t *testing.T, s S) (back S) {
	t.Helper()
	b, err := cbor.Marshal(s)
	if err == nil {
		err = cbor.Unmarshal(b, &back)
	}
	if err != nil {
		t.Fatal(err)
	}
	return back
}

func (c Case[S]) broken(t *testing.T) {
	dev, restore := c.Make(t)
	good := dev.State()
	if _, err := restore(good); err != nil {
		t.Fatalf("good state: %v", err)
	}
	if len(c.Broken) == 0 {
		t.Error("no broken states are given")
	}
	for name, change := range c.Broken {
		s := good
		change(&s)
		if _, err := restore(s); !errors.Is(err, virtio.ErrState) {
			t.Errorf("%s: got %v, want %v", name, err, virtio.ErrState)
		}
	}
}

// twice makes each call more often than needed, in each place of a device's life.
func (c Case[S]) twice(t *testing.T) {
	dev, _ := c.Make(t)
	all := func() {
		for _, call := range []func(){dev.Pause, dev.Resume, dev.Reset} {
			call()
			call()
		}
	}
	all()
	for range 2 {
		r := NewRig(t, dev)
		r.Activate(dev)
		dev.Resume()
		r.Do(c.Request)
		dev.Pause()
		dev.Pause()
		dev.Resume()
		dev.Resume()
		r.Do(c.Request)
		dev.Pause()
		all()
	}
}

// silence has a request waiting for a device that may not look: new, paused,
// restored, or reset.
func (c Case[S]) silence(t *testing.T) {
	dev, restore := c.Make(t)
	r := NewRig(t, dev)
	answered := r.Offer(c.Request)
	r.Unchanged("new device", func() { time.Sleep(quiet) })
	r.Activate(dev)
	r.Wait(answered)

	dev.Pause()
	states := r.States()
	answered = r.Offer(c.Request)
	r.Unchanged("paused device", func() { time.Sleep(quiet) })
	r.Unchanged("reset", dev.Reset)
	r.Unchanged("reset device", func() { time.Sleep(quiet) })
	back, err := restore(dev.State())
	if err != nil {
		t.Fatal(err)
	}
	r.Unchanged("restored device", func() { time.Sleep(quiet) })
	r.ActivateWith(back, states)
	r.Wait(answered)
}
