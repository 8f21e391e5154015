// Package devicetest checks what every device promises by virtio.Device and by
// its saved state. Each device package runs Conformance on itself.
package devicetest

import (
	"bytes"
	"errors"
	"reflect"
	"testing"
	"time"

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
	// Golden is a state with something in every field.
	Golden S
}

// quiet is how long a device is watched that should do nothing: several times
// what a worker needs to wake up.
const quiet = 20 * time.Millisecond

// Conformance runs the checks as subtests.
func Conformance[S any](t *testing.T, c Case[S]) {
	t.Run("state survives", func(t *testing.T) { c.survives(t) })
	t.Run("broken state", func(t *testing.T) { c.broken(t) })
	t.Run("changed state", func(t *testing.T) { c.changed(t) })
	t.Run("golden state", func(t *testing.T) { Golden(t, c.Golden) })
	t.Run("calls twice", func(t *testing.T) { c.twice(t) })
	t.Run("silence", func(t *testing.T) { c.silence(t) })
}

// survives saves a device that has worked, by way of bytes, goes on with the
// restored one on the same queues, and saves that at once: not a bit differs.
func (c Case[S]) survives(t *testing.T) {
	dev, restore := c.Make(t)
	r := NewRig(t, dev)
	r.Activate(dev)
	r.Do(c.Request)
	dev.Pause()
	saved := Encode(t, dev.State())
	states := r.States()
	dev.Reset()

	back, err := restore(Decode[S](t, saved))
	if err != nil {
		t.Fatal(err)
	}
	if again := Encode(t, back.State()); !bytes.Equal(again, saved) {
		t.Errorf("restored state\n%x, was\n%x", again, saved)
	}
	if back.ID() != dev.ID() || back.Features() != dev.Features() || !reflect.DeepEqual(back.QueueSizes(), dev.QueueSizes()) {
		t.Error("the restored device is another one to its driver")
	}
	r.Restore(back, states)
	if again := Encode(t, back.State()); !bytes.Equal(again, saved) {
		t.Errorf("state of the restored device when it is paused\n%x, was\n%x", again, saved)
	}
	if again := r.States(); !reflect.DeepEqual(again, states) {
		t.Errorf("queues of the restored device\n%+v, were\n%+v", again, states)
	}
	back.Pause()
	back.Resume()
	r.Do(c.Request)
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

// changed restores states with a change somewhere: it gets an error of the right
// kind, or a device that works.
func (c Case[S]) changed(t *testing.T) {
	dev, restore := c.Make(t)
	r := NewRig(t, dev)
	r.Activate(dev)
	r.Do(c.Request)
	dev.Pause()
	worked := dev.State()
	dev.Reset()
	refused, restored := 0, 0
	check := func(t testing.TB, field string, s S) {
		back, err := restore(s)
		switch {
		case errors.Is(err, virtio.ErrState):
			refused++
			return
		case err != nil:
			t.Errorf("%s: %v, want %v", field, err, virtio.ErrState)
			return
		}
		r := NewRig(t, back)
		r.Activate(back)
		r.Do(c.Request)
		back.Reset()
		restored++
	}
	Changes(t, worked, check)
	Changes(t, c.Golden, check)
	t.Logf("%d refused, %d restored", refused, restored)
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
	r.Unchanged("restored device", func() {
		r.Restore(back, states)
		time.Sleep(quiet)
	})
	r.Unchanged("reset of a restored device", back.Reset)
	if back, err = restore(dev.State()); err != nil {
		t.Fatal(err)
	}
	r.Restore(back, states)
	back.Resume()
	r.Wait(answered)
}
