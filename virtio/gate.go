package virtio

import (
	"sync/atomic"

	"thaw/internal/eventfd"
)

// Gate is how a goroutine that serves a queue is paused and ended from outside.
//
//	         Pause                   goroutine is at Hold
//	runs ──────────▶ pausing ──────────────────────────────▶ held
//	 ▲ │                                                      │ │
//	 │ └─ Stop ──▶ ended ◀────────────────────────────── Stop ┘ │
//	 └────────────────────────── Resume ────────────────────────┘
//
// The kick wakes the goroutine from its sleep for all of them. Pause, Resume and
// Stop are called by one goroutine at a time, Hold, Runs and End by the one that
// is held.
type Gate struct {
	kick    *eventfd.FD
	state   atomic.Int32
	request chan struct{} // taken by the goroutine when it is held
	resume  chan struct{}
	done    chan struct{} // closed by End
}

const (
	gateRuns int32 = iota
	gatePausing
	gateStops
)

// NewGate returns a gate for a goroutine that sleeps on kick.
func NewGate(kick *eventfd.FD) *Gate {
	return &Gate{kick: kick, request: make(chan struct{}), resume: make(chan struct{}), done: make(chan struct{})}
}

// Pause returns when the goroutine is held until Resume. It does nothing when it
// has ended.
func (g *Gate) Pause() {
	if !g.state.CompareAndSwap(gateRuns, gatePausing) {
		return
	}
	g.kick.Signal()
	select {
	case g.request <- struct{}{}:
	case <-g.done:
	}
}

// Resume ends a Pause.
func (g *Gate) Resume() {
	if !g.state.CompareAndSwap(gatePausing, gateRuns) {
		return
	}
	g.letGo()
}

// Stop ends the goroutine, held or not, and returns when it has ended.
func (g *Gate) Stop() {
	if g.state.Swap(gateStops) == gatePausing {
		g.letGo()
	}
	g.kick.Signal()
	<-g.done
}

func (g *Gate) letGo() {
	select {
	case g.resume <- struct{}{}:
	case <-g.done:
	}
}

// Hold holds the goroutine while it is to pause, after calling rest, and says
// whether it is to go on.
func (g *Gate) Hold(rest func()) (goOn bool) {
	for {
		switch g.state.Load() {
		case gateRuns:
			return true
		case gateStops:
			return false
		}
		rest()
		<-g.request
		<-g.resume
	}
}

// Runs says whether Hold would let the goroutine pass: a cheap look.
func (g *Gate) Runs() bool { return g.state.Load() == gateRuns }

// End says that the goroutine has ended.
func (g *Gate) End() { close(g.done) }
