package virtio

import (
	"sync/atomic"
	"time"

	"thaw/internal/eventfd"
)

// Worker serves one queue, or several that share a kick, on a goroutine of
// its own.
//
//	         work                none for a while
//	┌─▶ serve ──▶ poll the ring ──────────────────▶ ask for a kick, sleep
//	│      ▲            │ new chain                          │
//	│      └────────────┘                                    │ kick
//	└────────────────────────────────────────────────────────┘
//
// Polling before sleeping spares a busy guest the kick and ourselves the
// wake-up, which together cost more than a 4 KiB read. The window adapts as
// KVM's halt polling does: it doubles when work came soon after going to
// sleep, and shrinks when polling was in vain, so an idle device costs nothing.
// It is for a driver that waits for each answer, or that has much to give; else
// it only takes a CPU from those who have work.
type Worker struct {
	kick    *eventfd.FD
	handler Handler
	worth   func() bool // nil: never polls
	gate    *Gate
	metrics WorkerMetrics
}

// Handler is a device's side of a worker. Its methods are called on the
// worker's goroutine only.
type Handler interface {
	// Serve answers what is in the queue and returns whether there was
	// anything. After an error the worker ends.
	Serve() (worked bool, err error)
	// Waiting is a cheap look whether Serve would find anything.
	Waiting() bool
	// Enable asks the driver for a kick and says whether something came
	// meanwhile; Disable says that none is needed.
	Enable() (waiting bool)
	Disable()
}

// WorkerMetrics counts what a worker did.
type WorkerMetrics struct {
	Kicks    atomic.Uint64 // sleeps that ended with a kick
	PollHits atomic.Uint64 // times that polling found work
	PollMiss atomic.Uint64 // times that it did not
}

// Poll windows. The largest is about twice what a kick and wake-up cost on
// the slowest host kind.
const (
	PollMax  = 100 * time.Microsecond
	pollMin  = 10 * time.Microsecond
	pollStep = 64 // looks at the ring between two looks at the clock
)

// StartWorker starts a worker on kick that sleeps as soon as there is nothing
// to do. fail is called once, on the worker's goroutine, if the handler returns an
// error.
func StartWorker(kick *eventfd.FD, h Handler, fail func(error)) *Worker {
	return start(&Worker{kick: kick, handler: h, gate: NewGate(kick)}, fail)
}

// StartPollingWorker starts a worker that polls for a while before it sleeps,
// if worth says after a Serve that more is to be expected soon. It is called on
// the worker's goroutine.
func StartPollingWorker(kick *eventfd.FD, h Handler, worth func() bool, fail func(error)) *Worker {
	return start(&Worker{kick: kick, handler: h, gate: NewGate(kick), worth: worth}, fail)
}

// Always makes a worker poll after every Serve.
func Always() bool { return true }

func start(w *Worker, fail func(error)) *Worker {
	go func() {
		defer w.gate.End()
		if err := w.run(); err != nil {
			fail(err)
		}
	}()
	return w
}

// Metrics returns the worker's counters.
func (w *Worker) Metrics() *WorkerMetrics { return &w.metrics }

// Pause returns when the handler is not running and will not run until
// Resume. It does nothing when the worker has ended.
func (w *Worker) Pause() { w.gate.Pause() }

// Resume ends a Pause.
func (w *Worker) Resume() { w.gate.Resume() }

// Stop ends the worker and returns when its goroutine has.
func (w *Worker) Stop() { w.gate.Stop() }

func (w *Worker) run() error {
	var window time.Duration
	for w.gate.Hold(func() {}) {
		worked, err := w.handler.Serve()
		if err != nil {
			return err
		}
		if polls := w.worth != nil && w.worth(); !polls {
			window = 0
		} else if worked && window == 0 {
			window = pollMin
		}
		if w.look(window) {
			continue
		}
		if w.handler.Enable() {
			w.handler.Disable()
			continue
		}
		slept := time.Now()
		if err := w.kick.Wait(); err != nil {
			return err
		}
		w.metrics.Kicks.Add(1)
		w.handler.Disable()
		window = nextWindow(window, time.Since(slept))
	}
	return nil
}

// look looks at the ring, for at most window, and says whether there is
// something to do.
func (w *Worker) look(window time.Duration) bool {
	if w.handler.Waiting() {
		return true
	}
	if window == 0 {
		return false
	}
	for end := time.Now().Add(window); ; {
		for range pollStep {
			if w.handler.Waiting() || !w.gate.Runs() {
				w.metrics.PollHits.Add(1)
				return true
			}
		}
		if time.Now().After(end) {
			w.metrics.PollMiss.Add(1)
			return false
		}
	}
}

// nextWindow adapts the poll window after a sleep of the given length.
func nextWindow(window, slept time.Duration) time.Duration {
	if slept <= PollMax {
		return min(max(window*2, pollMin), PollMax)
	}
	if window /= 2; window < pollMin {
		return 0
	}
	return window
}
