package devicetest

import (
	"hash/maphash"
	"testing"
	"time"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

// queueSpan is how much guest memory each queue and its buffers get, in bytes.
const queueSpan = 2 << 20

// patience is how long an answer may take on a host under load.
const patience = 10 * time.Second

// Rig is the driver's side of a device: its memory and a driver for each queue.
type Rig struct {
	Memory *guestmem.Memory
	Queues []*queuetest.Driver

	t      testing.TB
	kicks  []*virtio.Kick
	active []virtio.Queue
	broken chan error
}

// NewRig lays out queues for a device, which is reset when the test ends.
func NewRig(t testing.TB, dev virtio.Device) *Rig {
	t.Helper()
	sizes := dev.QueueSizes()
	r := &Rig{Memory: queuetest.Memory(t, uint64(len(sizes))*queueSpan), t: t, broken: make(chan error, 16)}
	r.newKicks(len(sizes))
	for i, size := range sizes {
		r.Queues = append(r.Queues, queuetest.New(t, r.Memory, uint64(i)*queueSpan, queueSpan, size))
	}
	t.Cleanup(dev.Reset)
	return r
}

// newKicks makes kicks, with nothing on the way in them.
func (r *Rig) newKicks(n int) {
	r.t.Helper()
	r.kicks = nil
	for range n {
		kick, err := virtio.NewKick()
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() { kick.Close() })
		r.kicks = append(r.kicks, kick)
	}
}

// Activate starts the device on new queues, with all of its features.
func (r *Rig) Activate(dev virtio.Device) {
	r.t.Helper()
	r.activate(dev, nil)
}

// Restore starts the device, paused, on saved queues. Kicks of before are lost.
func (r *Rig) Restore(dev virtio.Device, states []queue.State) {
	r.t.Helper()
	r.newKicks(len(states))
	r.activate(dev, states)
}

// activate starts the device on saved queues, or on new ones for nil.
func (r *Rig) activate(dev virtio.Device, states []queue.State) {
	r.t.Helper()
	r.t.Cleanup(dev.Reset)
	r.active = nil
	for i, d := range r.Queues {
		q := virtio.Queue{Kick: r.kicks[i]}
		if states == nil {
			q.Queue = d.Queue()
		} else {
			var err error
			if q.Queue, err = queue.Restore(r.Memory, states[i]); err != nil {
				r.t.Fatal(err)
			}
		}
		r.active = append(r.active, q)
	}
	a := virtio.Activation{Memory: r.Memory, Features: dev.Features(), Queues: r.active, Interrupt: r, Paused: states != nil}
	if err := dev.Activate(a); err != nil {
		r.t.Fatal(err)
	}
}

// States saves the queues. Preconditions: the device is paused.
func (r *Rig) States() (states []queue.State) {
	for _, q := range r.active {
		states = append(states, q.State())
	}
	return states
}

// Answer is a used index that a queue is to reach.
type Answer struct {
	queue int
	index uint16
}

// Offer makes a request and kicks its queue.
func (r *Rig) Offer(request func(*Rig) int) Answer {
	r.t.Helper()
	n := request(r)
	if err := r.kicks[n].Signal(); err != nil {
		r.t.Fatal(err)
	}
	return Answer{n, r.Queues[n].AvailIndex()}
}

// Wait returns when the device has given an answer.
func (r *Rig) Wait(a Answer) {
	r.t.Helper()
	for deadline := time.Now().Add(patience); r.Queues[a.queue].UsedIndex() != a.index; {
		select {
		case err := <-r.broken:
			r.t.Fatalf("device needs reset: %v", err)
		case <-time.After(100 * time.Microsecond):
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("no answer on queue %d", a.queue)
		}
	}
}

// Do makes a request and waits for the answer.
func (r *Rig) Do(request func(*Rig) int) {
	r.t.Helper()
	r.Wait(r.Offer(request))
}

// Unchanged does something that must leave guest memory as it is.
func (r *Rig) Unchanged(who string, do func()) {
	r.t.Helper()
	seed := maphash.MakeSeed()
	before := r.sum(seed)
	do()
	if r.sum(seed) != before {
		r.t.Errorf("%s: guest memory has changed", who)
	}
}

func (r *Rig) sum(seed maphash.Seed) (sum uint64) {
	r.t.Helper()
	for _, region := range r.Memory.Regions() {
		b, err := r.Memory.Slice(region.Base, region.Size)
		if err != nil {
			r.t.Fatal(err)
		}
		sum ^= maphash.Bytes(seed, b)
	}
	return sum
}

// Used implements virtio.Interrupt: waiting looks at the rings.
func (r *Rig) Used() {}

// ConfigChanged implements virtio.Interrupt.
func (r *Rig) ConfigChanged() {}

// NeedsReset implements virtio.Interrupt.
func (r *Rig) NeedsReset(err error) { r.broken <- err }
