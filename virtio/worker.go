package virtio

import (
	"sync"
	"sync/atomic"
	"time"
)

// Worker serves one queue, off the vCPU thread, on the goroutine of its kick.
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
//
// A worker that sleeps is paused, resumed and stopped without waking it:
//
//	         Pause            no turn is on any more
//	runs ──────────▶ pauses ────────────────────────▶ Pause returns
//	 ▲ ◀───────────── Resume ────────┘ │ Stop
//	 └── Stop ──▶ ended ◀──────────────┘
//
// A kick that comes meanwhile is made up for by Resume, which also looks at the
// ring itself, since the kicks of before a restore are lost.
// Pause, Resume and Stop are called by one goroutine at a time.
type Worker struct {
	kick    *Kick
	handler Handler
	worth   func() bool // nil: never polls
	fail    func(error)
	metrics WorkerMetrics

	// Only a turn uses these.
	window time.Duration
	slept  time.Time // when the last turn ended; zero when there was none

	goal atomic.Int32 // changes under mu
	mu   sync.Mutex
	idle sync.Cond // of mu: working became false
	// working says that a turn is on: the handler belongs to it. Else it belongs
	// to whoever holds mu.
	working bool // protected by mu
	// armed says that the handler's Enable has found nothing to do, and no kick
	// was taken since; missed, that one was taken in a pause. Protected by mu.
	armed, missed bool
}

// What a worker is to do.
const (
	goalRun int32 = iota
	goalPause
	goalEnd
)

// Handler is a device's side of a worker. Its methods are called by one
// goroutine at a time.
type Handler interface {
	// Serve answers what is in the queue and returns whether there was
	// anything. After an error the worker ends.
	Serve() (worked bool, err error)
	// Waiting is a cheap look whether Serve would find anything.
	Waiting() bool
	// Enable asks the driver for a kick and says whether there is something for
	// Serve to do all the same; Disable says that no kick is needed.
	Enable() (waiting bool)
	Disable()
}

// Watcher is a Handler that has work from elsewhere as well.
type Watcher interface {
	Handler
	// Watch is called when Enable found nothing to do. It returns a descriptor
	// that is readable when there is, or -1.
	Watch() int
}

// Rester is a Handler that holds chains between two calls of Serve.
type Rester interface {
	Handler
	// Rest gives them back to the queue. It is called by Pause and Stop, and
	// must not write to guest memory.
	Rest()
}

// WorkerMetrics counts what a worker did.
type WorkerMetrics struct {
	Kicks    atomic.Uint64 // times that it woke up
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

// Start starts a worker for queue i that sleeps as soon as there is nothing to
// do; when the activation is paused it does nothing until Resume. The driver is
// told, once, if the handler returns an error.
func (a *Activation) Start(i int, h Handler) *Worker { return a.StartPolling(i, h, nil) }

// StartPolling is Start for a worker that polls for a while before it sleeps, if
// worth says after a Serve that more is to be expected soon. It is called like
// the handler's methods.
func (a *Activation) StartPolling(i int, h Handler, worth func() bool) *Worker {
	w := &Worker{kick: a.Queues[i].Kick, handler: h, worth: worth, fail: a.Interrupt.NeedsReset}
	w.idle.L = &w.mu
	w.goal.Store(goalPause)
	w.kick.attach(w)
	if !a.Paused {
		w.Resume()
	}
	return w
}

// Always makes a worker poll after every Serve.
func Always() bool { return true }

// Metrics returns the worker's counters.
func (w *Worker) Metrics() *WorkerMetrics { return &w.metrics }

// Pause returns when the handler is not running and will not run until
// Resume. It does nothing when the worker has ended.
func (w *Worker) Pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.goal.CompareAndSwap(goalRun, goalPause) {
		w.rest()
	}
}

// Resume ends a Pause. The goroutine is woken only if there is something to do.
func (w *Worker) Resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.goal.CompareAndSwap(goalPause, goalRun) || w.armed && !w.handler.Waiting() {
		return
	}
	// Only a turn can put the goroutine to sleep on a second descriptor.
	_, watches := w.handler.(Watcher)
	if w.armed = !w.missed && !watches && !w.handler.Enable(); !w.armed {
		_ = w.kick.Signal() // fails for a closed descriptor only
	}
	w.missed = false
}

// Stop ends the worker and returns when the handler is not running.
func (w *Worker) Stop() {
	w.mu.Lock()
	w.goal.Store(goalEnd)
	w.rest()
	w.mu.Unlock()
	w.kick.attach(nil)
}

// rest waits for the end of a turn. Preconditions: mu is held, goal is not to run.
func (w *Worker) rest() {
	for w.working {
		w.idle.Wait()
	}
	if r, ok := w.handler.(Rester); ok {
		r.Rest()
	}
}

// turn lets the worker work until there is nothing to do, and returns what to
// sleep on beside the kick.
func (w *Worker) turn(work func() error) (watch int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if w.goal.Load() != goalRun {
		w.missed = true
		return noWatch
	}
	w.working = true
	w.mu.Unlock()
	err := work()
	if err != nil {
		w.fail(err) // before a Pause can return
	}
	w.mu.Lock()
	w.working = false
	w.idle.Broadcast()
	if err != nil {
		w.goal.Store(goalEnd)
		return noWatch
	}
	h, ok := w.handler.(Watcher)
	if !ok || !w.armed {
		return noWatch
	}
	if w.goal.Load() == goalRun {
		return h.Watch()
	}
	// A Pause waits for the end of this turn. We sleep on the kick alone now, so
	// Resume must wake us.
	w.armed = false
	return noWatch
}

// run is a turn's work. Preconditions: working.
func (w *Worker) run() error {
	w.metrics.Kicks.Add(1)
	w.handler.Disable()
	if !w.slept.IsZero() {
		w.window = nextWindow(w.window, time.Since(w.slept))
	}
	for began := time.Now(); w.runs(); {
		worked, err := w.handler.Serve()
		if err != nil {
			return err
		}
		if w.kick.looked(began); w.kick.crowds() {
			// It goes on, and may poll, where nobody waits for it.
			_ = w.kick.Signal() // fails for a closed descriptor only
			break
		}
		if polls := w.kick.alone && w.worth != nil && w.worth(); !polls {
			w.window = 0
		} else if worked && w.window == 0 {
			w.window = pollMin
		}
		if w.look() {
			continue
		}
		if !w.handler.Enable() {
			w.armed = true // nobody else looks at it while we work
			w.slept = time.Now()
			return nil
		}
		w.handler.Disable()
	}
	w.slept = time.Now()
	return nil
}

func (w *Worker) runs() bool { return w.goal.Load() == goalRun }

// look looks at the ring, for at most the window, and says whether there is
// something to do.
func (w *Worker) look() bool {
	if w.handler.Waiting() {
		return true
	}
	if w.window == 0 {
		return false
	}
	for end := time.Now().Add(w.window); ; {
		for range pollStep {
			if w.handler.Waiting() || !w.runs() {
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
