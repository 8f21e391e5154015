package virtio

import (
	"sync/atomic"
	"testing"

	"thaw/internal/eventfd"
)

func newKick(t *testing.T) *eventfd.FD {
	t.Helper()
	kick, err := eventfd.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kick.Close() })
	return kick
}

// A goroutine that sleeps on its kick most of the time does nothing from Pause
// to Resume, and ends at Stop, held or not.
func TestGate(t *testing.T) {
	for _, held := range []bool{false, true} {
		kick := newKick(t)
		g := NewGate(kick)
		var steps, rests atomic.Int64
		go func() {
			defer g.End()
			for g.Hold(func() { rests.Add(1) }) {
				steps.Add(1)
				if err := kick.Wait(); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		for range 1000 {
			g.Pause()
			before := steps.Load()
			kick.Signal()
			if g.Runs() || steps.Load() != before {
				t.Fatal("it runs while it is held")
			}
			g.Resume()
		}
		if rests.Load() < 1000 {
			t.Errorf("%d rests in 1000 pauses", rests.Load())
		}
		if held {
			g.Pause()
		}
		g.Stop()
		if g.Hold(func() {}) {
			t.Error("it would go on after Stop")
		}
	}
}

// Calls on a goroutine that has ended by itself return.
func TestGateOfNobody(t *testing.T) {
	g := NewGate(newKick(t))
	g.End()
	g.Pause()
	g.Resume()
	g.Pause()
	g.Stop()
}
