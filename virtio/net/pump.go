package net

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"thaw/internal/eventfd"
)

// pump runs a receiver on a goroutine of its own. It is a virtio.Worker with
// a second source of events, the tap:
//
//	           drained: sleep on tap and kick
//	┌─▶ serve ─┤
//	│          starved: ask for a kick, sleep on kick
//	└──────────┘
//
// The kick wakes it for Pause and Stop as well.
type pump struct {
	receiver *receiver
	kick     *eventfd.FD
	lost     func() // told once that the tap is gone
	fds      [2]unix.PollFd

	state   atomic.Int32
	request chan struct{}
	resume  chan struct{}
	done    chan struct{}
}

const (
	pumpRuns int32 = iota
	pumpPausing
	pumpStops
)

// startPump starts a pump. fail is called once, on its goroutine, if the
// receiver returns an error.
func startPump(r *receiver, kick *eventfd.FD, lost func(), fail func(error)) *pump {
	p := &pump{
		receiver: r, kick: kick, lost: lost,
		request: make(chan struct{}), resume: make(chan struct{}), done: make(chan struct{}),
	}
	p.fds[0] = unix.PollFd{Fd: int32(kick.Fd()), Events: unix.POLLIN}
	p.fds[1] = unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN}
	go func() {
		defer close(p.done)
		err := p.run()
		r.release()
		if err != nil {
			fail(err)
		}
	}()
	return p
}

// pause returns when the receiver is at rest, with every chain given back.
func (p *pump) pause() {
	if !p.state.CompareAndSwap(pumpRuns, pumpPausing) {
		return
	}
	p.kick.Signal()
	select {
	case p.request <- struct{}{}:
	case <-p.done:
	}
}

// unpause ends a pause.
func (p *pump) unpause() {
	if !p.state.CompareAndSwap(pumpPausing, pumpRuns) {
		return
	}
	select {
	case p.resume <- struct{}{}:
	case <-p.done:
	}
}

// stop ends the pump and returns when its goroutine has.
func (p *pump) stop() {
	if p.state.Swap(pumpStops) == pumpPausing {
		select {
		case p.resume <- struct{}{}:
		case <-p.done:
		}
	}
	p.kick.Signal()
	<-p.done
}

func (p *pump) run() error {
	r := p.receiver
	r.queue.DisableNotify()
	for {
		switch p.state.Load() {
		case pumpStops:
			return nil
		case pumpPausing:
			r.release()
			<-p.request
			<-p.resume
			continue
		}
		st, err := r.serve()
		if err != nil {
			return err
		}
		switch st {
		case drained:
			err = p.drained()
		case starved:
			err = p.starved()
		case gone:
			err = p.gone()
		}
		if err != nil {
			return err
		}
	}
}

// drained returns when there is a frame, or on a kick. It sleeps at once:
// looking on for a while, as virtio.Worker does, gained nothing in round trips
// (a wait for an answer is longer than is worth looking) and took the
// processor from whoever makes the next frame.
func (p *pump) drained() error { return p.sleep(p.fds[:]) }

// starved returns when the driver has added buffers, or on a kick.
func (p *pump) starved() error {
	r := p.receiver
	r.metrics.Starved.Add(1)
	defer r.queue.DisableNotify()
	if r.queue.EnableNotify() {
		return nil
	}
	return p.sleep(p.fds[:1])
}

// gone reports the tap as lost and returns on a kick: only Pause and Stop
// are left to react to.
func (p *pump) gone() error {
	p.lost()
	return p.sleep(p.fds[:1])
}

// sleep returns when one of fds has an event; the kick is always the first.
func (p *pump) sleep(fds []unix.PollFd) error {
	for {
		_, err := unix.Ppoll(fds, nil, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("net: wait for a frame: %w", err)
		}
		if fds[0].Revents != 0 {
			return p.kick.Wait()
		}
		return nil
	}
}
