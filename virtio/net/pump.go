package net

import (
	"time"

	"golang.org/x/sys/unix"
)

// pump runs a receiver as a virtio.Handler with a second source of events, the
// tap:
//
//	           drained: sleep on tap and kick
//	┌─▶ serve ─┤
//	│          starved: ask for a kick, sleep on kick
//	└──────────┘
type pump struct {
	receiver *receiver
	arrive   func() // called once, before the first frame is taken; may be nil
	lost     func() // told that the tap is gone
	// sending says whether the guest sends much.
	sending func() bool

	status status // of the last batch
}

// Serve delivers one batch.
func (p *pump) Serve() (worked bool, err error) {
	if p.receiver.tail == nil {
		p.receiver.prepare()
		if p.arrive != nil {
			p.arrive()
		}
	}
	p.status, err = p.receiver.serve()
	if p.status == gone {
		p.lost() // what is left to react to are Pause and Stop
	}
	return p.status == more, err
}

// Waiting says whether the last batch was ended for its length.
func (p *pump) Waiting() bool { return p.status == more }

// Enable lets the goroutine sleep until there is a frame, or a buffer. It does
// not poll, as other workers do: that gained nothing in round trips (a wait for
// an answer is longer than is worth looking) and took the processor from
// whoever makes the next frame.
//
// While the guest sends in bulk, what comes is acknowledgements, and each costs it
// an interrupt: some are let gather first.
func (p *pump) Enable() (waiting bool) {
	switch p.status {
	case drained:
		if p.sending() {
			pause := unix.NsecToTimespec(int64(moderation))
			_ = unix.Nanosleep(&pause, nil)
		}
		return false
	case starved:
		p.receiver.metrics.Starved.Add(1)
		return p.receiver.queue.EnableNotify()
	case gone:
		return false
	default:
		return true
	}
}

// moderation is how long acknowledgements may gather.
const moderation = 60 * time.Microsecond

// Disable says that no kick is needed.
func (p *pump) Disable() { p.receiver.queue.DisableNotify() }

// Watch names the tap, unless a frame would find no buffer.
func (p *pump) Watch() int {
	if p.status == drained {
		return p.receiver.fd
	}
	return -1
}

// Rest gives the gathered chains back. A frame for which they were too few is
// gone with that, so there is enough for the next.
func (p *pump) Rest() {
	p.receiver.release()
	if p.status == starved {
		p.status = more
	}
}
