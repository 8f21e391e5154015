package net

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/eventfd"
	"thaw/virtio"
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
	gate     *virtio.Gate
	// sending says whether the guest sends much.
	sending func() bool
}

// startPump starts a pump. fail is called once, on its goroutine, if the
// receiver returns an error.
func startPump(r *receiver, kick *eventfd.FD, sending func() bool, lost func(), fail func(error)) *pump {
	p := &pump{receiver: r, kick: kick, sending: sending, lost: lost, gate: virtio.NewGate(kick)}
	p.fds[0] = unix.PollFd{Fd: int32(kick.Fd()), Events: unix.POLLIN}
	p.fds[1] = unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN}
	go func() {
		defer p.gate.End()
		err := p.run()
		r.release()
		if err != nil {
			fail(err)
		}
	}()
	return p
}

// pause returns when the receiver is at rest, with every chain given back.
func (p *pump) pause() { p.gate.Pause() }

// unpause ends a pause.
func (p *pump) unpause() { p.gate.Resume() }

// stop ends the pump and returns when its goroutine has.
func (p *pump) stop() { p.gate.Stop() }

func (p *pump) run() error {
	r := p.receiver
	r.queue.DisableNotify()
	for p.gate.Hold(r.release) {
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
	return nil
}

// drained returns when there is a frame, or on a kick. It sleeps at once:
// looking on for a while, as virtio.Worker does, gained nothing in round trips
// (a wait for an answer is longer than is worth looking) and took the
// processor from whoever makes the next frame.
//
// While the guest sends in bulk, what comes is acknowledgements, and each costs it
// an interrupt: some are let gather first.
func (p *pump) drained() error {
	if p.sending() && p.gate.Runs() {
		pause := unix.NsecToTimespec(int64(moderation))
		_ = unix.Nanosleep(&pause, nil)
	}
	return p.sleep(p.fds[:])
}

// moderation is how long acknowledgements may gather.
const moderation = 60 * time.Microsecond

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
