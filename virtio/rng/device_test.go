package rng

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a driver with a device on the other side.
type rig struct {
	*queuetest.Driver
	t      testing.TB
	dev    *Device
	kick   *virtio.Kick
	active *queue.Queue // the device's side
	broken chan error
}

func newRig(t testing.TB, rate int64) *rig {
	t.Helper()
	dev, err := New(Options{Rate: rate})
	if err != nil {
		t.Fatal(err)
	}
	kick, err := virtio.NewKick()
	if err != nil {
		t.Fatal(err)
	}
	mem := queuetest.Memory(t, 8<<20)
	r := &rig{Driver: queuetest.New(t, mem, 1<<20, 7<<20, queueSize), t: t, dev: dev, kick: kick, broken: make(chan error, 1)}
	t.Cleanup(func() {
		r.dev.Reset()
		kick.Close()
	})
	return r
}

func (r *rig) activate() {
	r.t.Helper()
	r.active = r.Queue()
	r.start(false)
}

// start activates the device on the active queue.
func (r *rig) start(paused bool) {
	r.t.Helper()
	err := r.dev.Activate(virtio.Activation{
		Memory: r.Mem, Interrupt: interrupt{r}, Queues: []virtio.Queue{{Queue: r.active, Kick: r.kick}}, Paused: paused,
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// interrupt is the driver's side of the interrupt; the tests look at the ring.
type interrupt struct{ r *rig }

func (i interrupt) Used()                {}
func (i interrupt) ConfigChanged()       {}
func (i interrupt) NeedsReset(err error) { i.r.broken <- err }

func (r *rig) send(buffers ...queuetest.Buffer) {
	r.Add(buffers...)
	r.kick.Signal()
}

// wait returns how many bytes the next chain got.
func (r *rig) wait(limit time.Duration) (uint32, bool) {
	r.t.Helper()
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); {
		if _, n, ok := r.Used(); ok {
			return n, true
		}
		select {
		case err := <-r.broken:
			r.t.Fatalf("device needs reset: %v", err)
		default:
		}
	}
	return 0, false
}

func TestFill(t *testing.T) {
	r := newRig(t, DefaultRate)
	r.activate()
	for _, c := range []struct {
		name    string
		lengths []uint32
		want    uint32
	}{
		{"one buffer", []uint32{64}, 64},
		{"several", []uint32{1, 300, 0, 4096}, 4397},
		{"nothing", []uint32{0}, 0},
		{"more than allowed", []uint32{MaxRequest - 1, 100}, MaxRequest},
	} {
		t.Run(c.name, func(t *testing.T) {
			var chain []queuetest.Buffer
			for _, n := range c.lengths {
				chain = append(chain, r.Writable(n))
			}
			r.send(chain...)
			n, ok := r.wait(10 * time.Second)
			if !ok || n != c.want {
				t.Fatalf("got %d bytes, %v, want %d", n, ok, c.want)
			}
			var got []byte
			for _, b := range chain {
				got = append(got, r.Bytes(b)...)
			}
			if filled := got[:n]; n > 0 && bytes.Count(filled, []byte{0}) > len(filled)/8 {
				t.Error("the bytes are mostly zeros")
			}
			if len(bytes.Trim(got[n:], "\x00")) > 0 {
				t.Error("more was written than was said")
			}
		})
	}
	if got := r.dev.Metrics().Bytes.Load(); got != 64+4397+MaxRequest {
		t.Errorf("%d bytes counted", got)
	}
}

// A readable part, which a driver must not send, is ignored.
func TestReadableIsIgnored(t *testing.T) {
	r := newRig(t, DefaultRate)
	r.activate()
	r.send(r.Readable(make([]byte, 32)))
	r.send(r.Readable(make([]byte, 32)), r.Writable(32))
	if n, ok := r.wait(10 * time.Second); !ok || n != 0 {
		t.Fatalf("got %d bytes, %v", n, ok)
	}
	if n, ok := r.wait(10 * time.Second); !ok || n != 32 {
		t.Fatalf("got %d bytes, %v", n, ok)
	}
}

func TestThrottle(t *testing.T) {
	r := newRig(t, MaxRequest) // one request a second after the first two
	r.activate()
	start := time.Now()
	b := r.Writable(MaxRequest)
	r.send(b)
	r.send(b)
	r.send(b)
	for range 2 {
		if _, ok := r.wait(10 * time.Second); !ok {
			t.Fatal("no answer")
		}
	}
	for range 50 { // kicks do not help
		r.kick.Signal()
	}
	if _, ok := r.wait(100 * time.Millisecond); ok && time.Since(start) < 900*time.Millisecond {
		t.Fatal("the bucket has no bottom")
	}
	r.dev.Pause()
	r.dev.Resume()
	if _, ok := r.wait(10 * time.Second); !ok {
		t.Fatal("the timer did not wake the worker")
	}
	if r.dev.Metrics().Throttled.Load() == 0 {
		t.Error("not counted")
	}
}

func TestResetWhileThrottled(t *testing.T) {
	r := newRig(t, 1)
	r.activate()
	b := r.Writable(MaxRequest)
	r.send(b)
	r.send(b)
	r.wait(10 * time.Second)
	r.dev.Reset()
	r.dev.Pause()
	r.dev.Resume()
}

func TestBrokenRing(t *testing.T) {
	r := newRig(t, DefaultRate)
	r.activate()
	r.SetAvailIndex(1000)
	r.kick.Signal()
	select {
	case err := <-r.broken:
		if !errors.Is(err, queue.ErrGuest) {
			t.Fatalf("got %v, want %v", err, queue.ErrGuest)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the device goes on")
	}
}

func TestBucket(t *testing.T) {
	b, err := newBucket(1000)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0)
	if b.wait(now) != 0 || b.tokens != MaxRequest {
		t.Fatalf("a new bucket has %d tokens", b.tokens)
	}
	b.spend(MaxRequest + 500)
	if got := b.wait(now); got < 501*time.Millisecond || got > 502*time.Millisecond {
		t.Fatalf("500 in debt: wait %v", got)
	}
	// Many small steps add up to as much as one large one.
	for range 10000 {
		now = now.Add(100 * time.Microsecond)
		b.wait(now)
	}
	if b.tokens != 500 {
		t.Fatalf("%d tokens after a second, want 500", b.tokens)
	}
	b.wait(now.Add(1 << 62))
	if b.tokens != MaxRequest {
		t.Fatalf("%d tokens after years", b.tokens)
	}
	b.wait(now) // a clock that goes back takes nothing
	if b.tokens != MaxRequest {
		t.Fatalf("%d tokens", b.tokens)
	}
	for _, rate := range []int64{0, -1, MaxRate + 1} {
		if _, err := New(Options{Rate: rate}); !errors.Is(err, ErrRate) {
			t.Errorf("rate %d: %v", rate, err)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	r := newRig(t, MaxRate)
	s := &server{dev: r.dev, queue: virtio.Queue{Queue: r.Queue(), Kick: r.kick}, interrupt: interrupt{r}}
	chain := []queuetest.Buffer{r.Writable(64), r.Writable(64)}
	if n := testing.AllocsPerRun(100, func() {
		r.Add(chain...)
		if _, err := s.Serve(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Fatalf("%v allocations a request", n)
	}
}

// A guest that has used up its bytes waits for more after a restore as well, and
// gets them without another kick.
func TestThrottledOverRestore(t *testing.T) {
	r := newRig(t, MaxRequest)
	r.activate()
	for range 3 {
		r.send(r.Writable(MaxRequest))
	}
	for end := time.Now().Add(10 * time.Second); r.dev.Metrics().Throttled.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never throttled")
		}
	}
	r.dev.Pause()
	s, ring, used := r.dev.State(), r.active.State(), r.UsedIndex()
	r.dev.Reset()
	dev, err := Restore(Options{Rate: MaxRequest}, s)
	if err != nil {
		t.Fatal(err)
	}
	r.dev = dev
	if r.active, err = queue.Restore(r.Mem, ring); err != nil {
		t.Fatal(err)
	}
	r.start(true)
	time.Sleep(10 * time.Millisecond)
	if r.UsedIndex() != used {
		t.Fatal("served before Resume")
	}
	dev.Resume()
	for end := time.Now().Add(10 * time.Second); r.UsedIndex() == used; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never served")
		}
	}
}
