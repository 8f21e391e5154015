package virtio

import (
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newKick(t *testing.T) *Kick {
	t.Helper()
	kick, err := NewKick()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kick.Close() })
	return kick
}

// ring is a handler of requests that are only counted.
type ring struct {
	made, served atomic.Int64 // requests
	enabled      atomic.Int64 // calls of Enable
	rests        atomic.Int64
	err          error // what Serve returns, once there is a request
}

func (r *ring) Serve() (bool, error) {
	n := r.made.Load() - r.served.Load()
	r.served.Add(n)
	if n > 0 && r.err != nil {
		return true, r.err
	}
	return n > 0, nil
}
func (r *ring) Waiting() bool { return r.made.Load() > r.served.Load() }
func (r *ring) Enable() bool  { r.enabled.Add(1); return r.Waiting() }
func (r *ring) Disable()      {}
func (r *ring) Rest()         { r.rests.Add(1) }

// watching is a ring with a second descriptor.
type watching struct {
	ring
	fd      int
	watched atomic.Bool
}

func (r *watching) Watch() int { r.watched.Store(true); return r.fd }

// told is an Interrupt that notes the error.
type told struct{ err atomic.Pointer[error] }

func (*told) Used()                  {}
func (*told) ConfigChanged()         {}
func (i *told) NeedsReset(err error) { i.err.Store(&err) }

func start(r Handler, k *Kick, paused bool) (*Worker, *told) {
	i := new(told)
	a := Activation{Queues: []Queue{{Kick: k}}, Interrupt: i, Paused: paused}
	return a.Start(0, r), i
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s", what)
		}
	}
}

// A worker does nothing from Pause to Resume, and then what came meanwhile, be
// its kick early, late or lost.
func TestPause(t *testing.T) {
	k := newKick(t)
	r := new(ring)
	w, _ := start(r, k, false)
	for i := range 500 {
		k.Signal()
		w.Pause()
		before := r.served.Load()
		r.made.Add(1)
		if i%3 > 0 {
			k.Signal()
		}
		if i%3 == 1 {
			time.Sleep(20 * time.Microsecond)
		}
		if r.served.Load() != before {
			t.Fatal("it serves while it is paused")
		}
		w.Resume()
		await(t, "answer", func() bool { return r.served.Load() == r.made.Load() })
	}
	if r.rests.Load() < 500 {
		t.Errorf("%d rests in 500 pauses", r.rests.Load())
	}
	w.Stop()
}

// A worker that starts paused touches nothing until Resume, and one that finds
// nothing to do is not even woken then.
func TestStartPaused(t *testing.T) {
	k := newKick(t)
	r := new(ring)
	w, _ := start(r, k, true)
	r.made.Add(1)
	k.Signal()
	time.Sleep(5 * time.Millisecond)
	if r.served.Load() != 0 || r.enabled.Load() != 0 {
		t.Fatal("it works before Resume")
	}
	w.Resume()
	await(t, "answer", func() bool { return r.served.Load() == 1 })
	w.Stop()

	idle := new(ring)
	w, _ = start(idle, k, true)
	w.Resume()
	time.Sleep(5 * time.Millisecond)
	if n := w.Metrics().Kicks.Load(); n != 0 {
		t.Errorf("woken %d times for nothing", n)
	}
	idle.made.Add(1)
	k.Signal()
	await(t, "answer", func() bool { return idle.served.Load() == 1 })
	w.Stop()
}

// slow is a Watcher that takes its time to find that there is nothing to do.
type slow struct {
	watching
	entered, leave chan struct{}
}

func (r *slow) Enable() bool {
	r.entered <- struct{}{}
	<-r.leave
	return false
}

// A Pause that comes while a worker is about to sleep does not cost it the second
// descriptor.
func TestPauseBeforeWatch(t *testing.T) {
	k := newKick(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	r := &slow{watching: watching{fd: int(read.Fd())}, entered: make(chan struct{}), leave: make(chan struct{})}
	w, _ := start(r, k, false)
	<-r.entered
	paused := make(chan struct{})
	go func() {
		defer close(paused)
		w.Pause()
	}()
	await(t, "pause", func() bool { return w.goal.Load() == goalPause })
	r.leave <- struct{}{}
	<-paused
	w.Resume()
	select {
	case <-r.entered:
		r.leave <- struct{}{}
	case <-time.After(10 * time.Second):
		t.Fatal("worker sleeps without its second descriptor")
	}
	await(t, "watch", r.watched.Load)
	w.Stop()
}

// timed is a handler that is kicked for something that is not in its ring.
type timed struct{ ring }

func (r *timed) Waiting() bool { return false }
func (r *timed) Enable() bool  { return false }

// A kick that is taken in a pause is made up for.
func TestKickInPause(t *testing.T) {
	k := newKick(t)
	r := new(timed)
	w, _ := start(r, k, false)
	for i := range int64(100) {
		w.Pause()
		r.made.Add(1)
		k.Signal()
		if i%2 == 0 {
			time.Sleep(100 * time.Microsecond)
		}
		w.Resume()
		await(t, "answer", func() bool { return r.served.Load() == i+1 })
	}
	w.Stop()
}

// Workers follow each other on one kick: none works for the one before, and no
// request of the new one is lost.
func TestSuccession(t *testing.T) {
	k := newKick(t)
	for i := range 500 {
		r := new(ring)
		w, _ := start(r, k, i%2 == 0)
		if i%3 == 0 {
			r.made.Add(1)
			k.Signal()
		}
		w.Resume()
		r.made.Add(1)
		k.Signal()
		await(t, "answer", func() bool { return r.served.Load() == r.made.Load() })
		if i%5 == 0 {
			w.Pause()
		}
		w.Stop()
		before := r.enabled.Load()
		k.Signal()
		w.Resume()
		w.Pause()
		if r.enabled.Load() != before {
			t.Fatal("it works after Stop")
		}
	}
}

// A second descriptor wakes a worker, but not a paused one.
func TestWatch(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	k := newKick(t)
	r := &watching{fd: int(in.Fd())}
	w, _ := start(r, k, false)
	k.Signal()
	await(t, "watch", r.watched.Load)
	r.made.Add(1)
	out.Write([]byte{0})
	await(t, "answer", func() bool { return r.served.Load() == 1 })
	w.Pause()
	r.made.Add(1)
	time.Sleep(5 * time.Millisecond)
	if n := w.Metrics().Kicks.Load(); r.served.Load() != 1 {
		t.Errorf("served while paused, %d wakes", n)
	}
	w.Resume()
	await(t, "answer", func() bool { return r.served.Load() == 2 })
	w.Stop()
}

// A worker that fails tells so once, and calls on it return.
func TestFailure(t *testing.T) {
	k := newKick(t)
	r := &ring{err: errors.New("broken")}
	w, told := start(r, k, false)
	r.made.Add(1)
	k.Signal()
	await(t, "report", func() bool { return told.err.Load() != nil })
	w.Pause()
	w.Resume()
	r.made.Add(1)
	k.Signal()
	time.Sleep(time.Millisecond)
	w.Stop()
	if r.served.Load() != 1 || !errors.Is(*told.err.Load(), r.err) {
		t.Errorf("%d served, error %v", r.served.Load(), *told.err.Load())
	}
}
