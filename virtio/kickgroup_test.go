package virtio

import (
	"errors"
	"os"
	"testing"
	"time"
)

// newGroup returns kicks that share a goroutine.
func newGroup(t *testing.T, n int) []*Kick {
	t.Helper()
	var g KickGroup
	defer g.Start()
	kicks := make([]*Kick, n)
	for i := range kicks {
		var err error
		if kicks[i], err = g.NewKick(); err != nil {
			t.Fatal(err)
		}
	}
	return kicks
}

// Kicks that share a goroutine wake only the worker whose they are, and live on when
// another of them has ended.
func TestSharedGoroutine(t *testing.T) {
	kicks := newGroup(t, sharedMost+2)
	rings, workers := make([]*ring, len(kicks)), make([]*Worker, len(kicks))
	for i, k := range kicks {
		rings[i] = new(ring)
		if i == 1 {
			rings[i].err = errors.New("broken")
		}
		workers[i], _ = start(rings[i], k, false)
	}
	for i, k := range kicks {
		await(t, "first turn", func() bool { return rings[i].enabled.Load() > 0 })
		before := make([]int64, len(kicks))
		for j, r := range rings {
			before[j] = r.enabled.Load()
		}
		rings[i].made.Add(1)
		if err := k.Signal(); err != nil {
			t.Fatal(err)
		}
		await(t, "answer", func() bool { return rings[i].served.Load() == 1 })
		for j, r := range rings {
			if j > i && r.enabled.Load() != before[j] {
				t.Errorf("kick %d gave worker %d a turn", i, j)
			}
		}
	}
	last := len(kicks) - 1
	for i := range last {
		workers[i].Stop()
		if err := kicks[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	rings[last].made.Add(1)
	kicks[last].Signal()
	await(t, "answer", func() bool { return rings[last].served.Load() == 2 })
	workers[last].Stop()
	if err := kicks[last].Close(); err != nil {
		t.Fatal(err)
	}
}

// One of the kicks that share a goroutine can have a second descriptor.
func TestSharedGoroutineWatches(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	defer out.Close()
	kicks := newGroup(t, 2)
	plain, other := new(ring), &watching{fd: int(in.Fd())}
	first, _ := start(plain, kicks[0], false)
	second, _ := start(other, kicks[1], false)
	kicks[1].Signal()
	await(t, "watch", other.watched.Load)
	plain.made.Add(1)
	kicks[0].Signal()
	await(t, "answer", func() bool { return plain.served.Load() == 1 })
	other.made.Add(1)
	out.Write([]byte{0})
	await(t, "answer of the other", func() bool { return other.served.Load() == 1 })
	for i, w := range []*Worker{first, second} {
		w.Stop()
		if err := kicks[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// tardy is a handler that takes long for what it finds.
type tardy struct{ ring }

func (r *tardy) Serve() (bool, error) { time.Sleep(2 * longTurn); return r.ring.Serve() }

// One turn that takes long is enough: the others wait for it once, and not for those to come.
func TestSlowKickGoesApart(t *testing.T) {
	kicks := newGroup(t, 2)
	slowRing, rest := new(tardy), new(ring)
	first, _ := start(slowRing, kicks[0], false)
	second, _ := start(rest, kicks[1], false)
	slowRing.made.Add(1)
	kicks[0].Signal()
	await(t, "answer of the slow one", func() bool { return slowRing.served.Load() == 1 })
	rest.made.Add(1)
	kicks[1].Signal()
	await(t, "answer of the other", func() bool { return rest.served.Load() == 1 })
	second.Stop() // and with it the goroutine that both had
	if err := kicks[1].Close(); err != nil {
		t.Fatal(err)
	}
	slowRing.made.Add(1)
	kicks[0].Signal()
	await(t, "answer on a goroutine of its own", func() bool { return slowRing.served.Load() == 2 })
	if !kicks[0].alone {
		t.Error("the slow kick is not alone")
	}
	first.Stop()
	if err := kicks[0].Close(); err != nil {
		t.Fatal(err)
	}
}

// endless is a handler that always finds something to do.
type endless struct{ ring }

func (r *endless) Serve() (bool, error) { r.served.Add(1); return true, nil }
func (*endless) Waiting() bool          { return true }
func (*endless) Enable() bool           { return true }

// A kick whose queue is busy does not keep those that share its goroutine from theirs: it gets one of its own, where it goes on
// and polls, and where it is paused, resumed and stopped as before.
func TestBusyKickGoesApart(t *testing.T) {
	kicks := newGroup(t, 2)
	busyRing, rest := new(endless), new(ring)
	first, _ := start(busyRing, kicks[0], false)
	second, _ := start(rest, kicks[1], false)
	await(t, "first turn of the other", func() bool { return rest.enabled.Load() > 0 })
	rest.made.Add(1)
	kicks[1].Signal()
	await(t, "answer of the other", func() bool { return rest.served.Load() == 1 })
	for range 3 {
		n := busyRing.served.Load()
		await(t, "more of the busy one", func() bool { return busyRing.served.Load() > n+busy })
		first.Pause()
		n = busyRing.served.Load()
		time.Sleep(time.Millisecond)
		if now := busyRing.served.Load(); now != n {
			t.Fatalf("%d served in a pause", now-n)
		}
		first.Resume()
	}
	for i, w := range []*Worker{first, second} {
		w.Stop()
		if err := kicks[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
}
