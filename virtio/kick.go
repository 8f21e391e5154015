package virtio

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/eventfd"
)

// Kick is the event that a queue's kick signals, with a goroutine that sleeps on
// it and, when woken, works for the Worker that has the queue then.
//
// The goroutine belongs to the event and not to a device: a thread that blocks
// in the kernel takes 0.1 ms to get there and as long to get back, for all of a
// machine's queues up to 2 ms, and a restore would wait for it. So threads go
// to sleep when the machine is made, and a restored device finds them there; a
// rollback in place wakes only those that have something to do.
type Kick struct {
	event *eventfd.FD
	ended chan struct{} // closed when the goroutine is through with it

	// Only the goroutine uses these.
	watch  int  // what it sleeps on beside the event, or noWatch
	woke   bool // it was one of those that woke it
	alone  bool // the goroutine has no other
	served int  // times that a worker has looked at its queue while it was not alone, or busy

	mu     sync.Mutex
	worker *Worker // protected by mu; nil while nobody serves the queue
	closed bool    // protected by mu
}

// NewKick returns a kick that nobody serves.
func NewKick() (*Kick, error) {
	var g KickGroup
	defer g.Start()
	return g.NewKick()
}

// KickGroup is kicks that share a goroutine until one of them is busy, which gets one of
// its own: a thread is memory that no other machine shares, and is made and ended with each
// machine, most of which live for a moment. Each kick waits for the others' turns meanwhile.
type KickGroup struct{ kicks []*Kick }

// NewKick returns a kick of the group that nobody serves. Nobody will, and Close does not
// return, before Start.
func (g *KickGroup) NewKick() (*Kick, error) {
	event, err := eventfd.New()
	if err != nil {
		return nil, err
	}
	k := &Kick{event: event, ended: make(chan struct{}), watch: noWatch}
	g.kicks = append(g.kicks, k)
	return k, nil
}

// Start starts the group's goroutine. It is called once, after the last NewKick.
func (g *KickGroup) Start() {
	for _, k := range g.kicks {
		k.alone = len(g.kicks) == 1
	}
	go sleep(g.kicks)
}

// Fd is the descriptor, for registration with KVM.
func (k *Kick) Fd() int { return k.event.Fd() }

// Signal kicks.
func (k *Kick) Signal() error { return k.event.Signal() }

// Close ends the goroutine; a second call does nothing. Preconditions: no worker
// has the kick.
func (k *Kick) Close() error {
	k.mu.Lock()
	closed := k.closed
	k.closed = true
	k.mu.Unlock()
	if closed {
		return nil
	}
	if err := k.event.Signal(); err != nil {
		return err
	}
	<-k.ended
	return k.event.Close()
}

// attach gives the kick to a worker, nil to nobody.
func (k *Kick) attach(w *Worker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.worker = w
}

// sleep is the goroutine. It owns the list.
func sleep(kicks []*Kick) {
	for len(kicks) > 0 {
		err := wait(kicks)
		kicks = slices.DeleteFunc(kicks, func(k *Kick) bool {
			switch {
			case !k.woke && err == nil:
				return false
			case k.serve(err):
				close(k.ended)
				return true
			case k.crowds():
				k.alone = true
				go sleep([]*Kick{k})
				return true
			default:
				return false
			}
		})
	}
}

// A kick gets a goroutine of its own when its queue was looked at busy times, which those
// of a machine that is restored, acknowledges and stands are not, or when it has kept the
// others waiting for longTurn, which a disk does that is throttled.
const (
	busy     = 64
	longTurn = 4 * time.Millisecond
)

// looked notes that a queue was looked at in a turn that began then.
func (k *Kick) looked(began time.Time) {
	if k.alone {
		return
	}
	if k.served++; time.Since(began) >= longTurn {
		k.served = busy
	}
}

// crowds says whether the kick is too busy to share its goroutine.
func (k *Kick) crowds() bool { return !k.alone && k.served >= busy }

// serve gives the kick's worker its turn, and says whether that was the last one. err is
// why there can be no other.
func (k *Kick) serve(err error) (last bool) {
	k.mu.Lock()
	w, closed := k.worker, k.closed
	k.mu.Unlock()
	switch {
	case closed:
		return true
	case w == nil: // a kick for nobody
		k.watch = noWatch
		return false
	case err != nil:
		w.turn(func() error { return err })
		return true
	default:
		k.watch = w.turn(w.run)
		return false
	}
}

// noWatch means that only the kick wakes.
const noWatch = -1

// wait returns on a kick, which it takes, or when a descriptor that a kick watches is
// readable, and notes whose that was.
func wait(kicks []*Kick) error {
	if only := kicks[0]; len(kicks) == 1 && only.watch == noWatch {
		only.woke = true
		return only.event.Wait()
	}
	var room [2 * sharedMost]unix.PollFd
	fds := room[:0]
	for _, k := range kicks {
		// A negative descriptor is one that is not looked at.
		fds = append(fds, unix.PollFd{Fd: int32(k.event.Fd()), Events: unix.POLLIN}, unix.PollFd{Fd: int32(k.watch), Events: unix.POLLIN})
	}
	for {
		_, err := unix.Ppoll(fds, nil, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("virtio: wait for kick: %w", err)
		}
		for i, k := range kicks {
			kicked, watched := fds[2*i].Revents != 0, fds[2*i+1].Revents != 0
			if k.woke = kicked || watched; kicked {
				if err := k.event.Wait(); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// sharedMost is how many kicks a goroutine has without a list that is made anew each time.
const sharedMost = 16
