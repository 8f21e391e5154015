// Package eventfd wraps the kernel's event counters (eventfd(2)): what KVM
// signals on a guest's kick (ioeventfd) and waits for to raise an interrupt
// (irqfd).
package eventfd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// FD is one event counter. Wait, Signal and Close may be called from any
// goroutine.
type FD struct {
	fd     int
	closed atomic.Bool
}

// New returns a counter at zero.
func New() (*FD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: create: %w", err)
	}
	return &FD{fd: fd}, nil
}

// Fd is the descriptor, for registration with KVM.
func (e *FD) Fd() int { return e.fd }

// Signal adds one to the counter. It does not block in practice: the counter
// has 64 bits.
func (e *FD) Signal() error {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	for {
		_, err := unix.Write(e.fd, one[:])
		if !errors.Is(err, unix.EINTR) {
			return wrap("signal", err)
		}
	}
}

// Wait blocks until the counter is above zero and resets it. The read is a
// plain blocking system call and not the runtime's poller: waking up through
// the poller costs a second thread switch on each kick.
func (e *FD) Wait() error {
	var buf [8]byte
	for {
		_, err := unix.Read(e.fd, buf[:])
		if !errors.Is(err, unix.EINTR) {
			runtime.KeepAlive(e)
			return wrap("wait", err)
		}
	}
}

// Close ends the use of the descriptor; a second call does nothing.
// Preconditions: nobody waits any more.
func (e *FD) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	return wrap("close", unix.Close(e.fd))
}

func wrap(verb string, err error) error {
	if err != nil {
		return fmt.Errorf("eventfd: %s: %w", verb, err)
	}
	return nil
}
