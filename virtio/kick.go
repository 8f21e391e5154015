package virtio

import (
	"errors"
	"fmt"
	"sync"

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
	ended chan struct{} // closed when the goroutine has ended

	mu     sync.Mutex
	worker *Worker // protected by mu; nil while nobody serves the queue
	closed bool    // protected by mu
}

// NewKick returns a kick that nobody serves.
func NewKick() (*Kick, error) {
	event, err := eventfd.New()
	if err != nil {
		return nil, err
	}
	k := &Kick{event: event, ended: make(chan struct{})}
	go k.sleep()
	return k, nil
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

// sleep is the goroutine.
func (k *Kick) sleep() {
	defer close(k.ended)
	for watch := noWatch; ; {
		err := k.wait(watch)
		k.mu.Lock()
		w, closed := k.worker, k.closed
		k.mu.Unlock()
		switch {
		case closed:
			return
		case w == nil: // a kick for nobody
			watch = noWatch
		case err != nil:
			w.turn(func() error { return err })
			return
		default:
			watch = w.turn(w.run)
		}
	}
}

// noWatch means that only the kick wakes.
const noWatch = -1

// wait returns on a kick, which it takes, or when the descriptor watch is
// readable.
func (k *Kick) wait(watch int) error {
	if watch == noWatch {
		return k.event.Wait()
	}
	fds := [2]unix.PollFd{
		{Fd: int32(k.event.Fd()), Events: unix.POLLIN},
		{Fd: int32(watch), Events: unix.POLLIN},
	}
	for {
		_, err := unix.Ppoll(fds[:], nil, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("virtio: wait for kick: %w", err)
		case fds[0].Revents != 0:
			return k.event.Wait()
		default:
			return nil
		}
	}
}
