package net

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/eventfd"
	"thaw/virtio"
)

// pump runs a receiver on a goroutine of its own. It is a virtio.Worker with
// a second source of events, the tap:
//
//	           drained: look a little longer, then sleep on tap and kick
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
	window   time.Duration // how long to look before sleeping
	until    time.Time     // end of the look that is on, if any

	state   atomic.Int32
	request chan struct{}
	resume  chan struct{}
	done    chan struct{}
}

// pollMin is the shortest time that is worth looking: a wake-up costs as much.
const pollMin = 10 * time.Microsecond

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
		worked, st, err := r.serve()
		if err != nil {
			return err
		}
		if worked {
			p.hit()
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

// hit ends a look that found a frame.
func (p *pump) hit() {
	if !p.until.IsZero() {
		p.receiver.metrics.Polled.Add(1)
		p.until = time.Time{}
	}
}

// drained returns when another look at the tap is due: at once while the
// window is open, else when there is a frame or a kick.
func (p *pump) drained() error {
	now := time.Now()
	if p.until.IsZero() {
		p.until = now.Add(p.window)
	}
	if now.Before(p.until) {
		return nil
	}
	p.until = time.Time{}
	if err := p.sleep(p.fds[:]); err != nil {
		return err
	}
	p.receiver.metrics.Slept.Add(1)
	p.window = nextWindow(p.window, time.Since(now))
	return nil
}

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
		_, err := unix.Poll(fds, -1)
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

// nextWindow adapts the time to look before sleeping to how long the last
// sleep was, as virtio.Worker does: it grows while sleeps are so short that
// looking on would have found the frame, and shrinks to nothing on an idle
// tap.
func nextWindow(window, slept time.Duration) time.Duration {
	if slept <= virtio.PollMax {
		return min(max(window*2, pollMin), virtio.PollMax)
	}
	if window /= 2; window < pollMin {
		return 0
	}
	return window
}
