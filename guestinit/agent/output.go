package agent

import (
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/tail"
)

// output carries one stream of a job to the host.
//
// Without a cap every byte is sent, and a host that does not read blocks the
// job through the pipe. With one, the first half goes out the same way; from
// then on the stream is read as fast as the job writes, the last half is kept
// in memory, and it is sent when the stream ends.
type output struct {
	e     *execution
	r     *os.File
	frame agentproto.FrameType
	done  chan struct{} // closed when everything was sent and the pipe closed

	wants chan want // functions to call between two reads

	mu    sync.Mutex
	until time.Time // set by stopWaiting; protected by mu

	sent   int64 // bytes that were delivered; protected by the exec's link
	wide   bool  // the pipe was enlarged
	capped bool
	head   int64 // bytes that may still be sent at once, if capped
	tail   tail.Tail

	// Results, valid once done is closed.
	total int64 // bytes that the job wrote
	held  bool  // given up on while a writer was left
	lost  bool  // some of it could not be delivered
}

func newOutput(e *execution, r *os.File, frame agentproto.FrameType, limit int64) *output {
	return &output{
		e: e, r: r, frame: frame, done: make(chan struct{}),
		wants:  make(chan want, 1),
		capped: limit > 0, head: limit - limit/2, tail: tail.Tail{Max: int(limit / 2)},
	}
}

// restart counts from zero, under a new cap. Preconditions: run calls it.
func (o *output) restart(limit int64) {
	o.capped, o.head, o.tail = limit > 0, limit-limit/2, tail.Tail{Max: int(limit / 2)}
	o.e.link.mu.Lock()
	defer o.e.link.mu.Unlock()
	o.total, o.sent = 0, 0
}

// want is something to do between two reads.
type want struct {
	do   func(*buffer)
	done chan struct{}
}

// between has run call do, with its buffer, once it has moved all that is in the pipe, and
// waits for that or for the end of the stream. run may come upon the want before
// the deadline is set, and then upon a deadline that nobody means any more: it
// tells that from the one of stopWaiting by the clock.
func (o *output) between(do func(*buffer)) {
	w := want{do, make(chan struct{})}
	select {
	case o.wants <- w:
	case <-o.done:
		return
	}
	_ = o.r.SetReadDeadline(time.Unix(1, 0)) // wakes the read
	select {
	case <-w.done:
	case <-o.done:
	}
}

// serveWants does what was asked for. It looks again after each time that it has
// set the deadline: who asked meanwhile has set it too, and would wait for a read
// that does not end.
func (o *output) serveWants(buf *buffer) error {
	for {
		select {
		case w := <-o.wants:
			if err := o.copyRest(buf); err != nil {
				return err
			}
			o.held = false // only the end of the stream tells
			w.do(buf)
			o.rearm()
			close(w.done)
		default:
			return nil
		}
	}
}

// rearm sets the deadline that stopWaiting wants, and reports whether it is over.
func (o *output) rearm() (over bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.r.SetReadDeadline(o.until)
	return !o.until.IsZero() && !time.Now().Before(o.until)
}

// dropped returns the bytes that were not delivered: those between head and
// tail, as a rule. Preconditions: done.
func (o *output) dropped() int64 { return o.total - o.sent }

// stopWaiting bounds the wait for a writer that does not close.
func (o *output) stopWaiting(until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.until = until
	_ = o.r.SetReadDeadline(until)
}

// run moves the stream until its end.
func (o *output) run() {
	defer o.e.s.guardExec(o.e)
	defer close(o.done)
	defer o.r.Close()
	buf := o.e.s.buffers.Get().(*buffer)
	defer o.e.s.buffers.Put(buf)

	if err := o.copy(buf); err != nil {
		// The host is gone for good. The job learns it by SIGPIPE or by being
		// killed.
		o.e.abandon()
		return
	}
	if err := o.sendTail(buf); err != nil {
		o.e.abandon()
	}
}

// copy reads to the end of the stream. Its errors are those of sending.
func (o *output) copy(buf *buffer) error {
	for {
		if err := o.serveWants(buf); err != nil {
			return err
		}
		n, err := o.r.Read(buf[agentproto.HeaderSize:])
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if o.rearm() {
				return errors.Join(o.serveWants(buf), o.copyRest(buf))
			}
			continue
		}
		if n > 0 {
			if err := o.take(buf, n); err != nil {
				return err
			}
		}
		if err != nil {
			// EOF. Any other read error of a pipe ends the stream as well.
			return nil
		}
	}
}

// copyRest takes what is in the pipe without waiting for more: the deadline
// that stopWaiting set makes Read fail even if there is data.
func (o *output) copyRest(buf *buffer) error {
	if err := o.r.SetReadDeadline(time.Time{}); err != nil {
		return nil
	}
	raw, err := o.r.SyscallConn()
	if err != nil {
		return nil
	}
	for {
		n, readErr := 0, error(nil)
		err := raw.Read(func(fd uintptr) bool {
			n, readErr = unix.Read(int(fd), buf[agentproto.HeaderSize:])
			return true
		})
		switch {
		case err != nil, errors.Is(readErr, unix.EAGAIN):
			o.held = true
			return nil
		case errors.Is(readErr, unix.EINTR):
			continue
		case readErr != nil, n <= 0:
			return nil
		}
		if err := o.take(buf, n); err != nil {
			return err
		}
	}
}

// widePipe is the pipe's size of a job that writes much: it and the agent take
// turns less often. Measured with 1 GiB: 1.5 times the rate of 64 KiB.
const widePipe = 256 << 10

// widen enlarges the pipe. Small outputs, which are most, do not pay for it.
func (o *output) widen() {
	o.wide = true
	raw, err := o.r.SyscallConn()
	if err != nil {
		return
	}
	// EPERM where the kernel's limit for pipes is lower: then it stays small.
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, widePipe) })
}

// take sends or keeps the n payload bytes of buf.
func (o *output) take(buf *buffer, n int) error {
	if o.total += int64(n); !o.wide && o.total > agentproto.MaxPayload {
		o.widen()
	}
	send := n
	if o.capped {
		send = int(min(int64(n), o.head))
		o.head -= int64(send)
		o.tail.Add(buf[agentproto.HeaderSize+send : agentproto.HeaderSize+n])
	}
	if send == 0 {
		return nil
	}
	return o.send(o.frame, 0, buf, send)
}

// sendTail sends what was kept.
func (o *output) sendTail(buf *buffer) error {
	flags := uint8(0)
	if o.tail.Dropped > 0 {
		flags = agentproto.FlagTail
	}
	for r := o.tail.Reader(); ; {
		n, err := r.Read(buf[agentproto.HeaderSize:])
		if n > 0 {
			if err := o.send(o.frame, flags, buf, n); err != nil {
				return err
			}
		}
		if err != nil || n == 0 {
			return nil
		}
	}
}

// send delivers the first n payload bytes of b.
func (o *output) send(t agentproto.FrameType, flags uint8, b *buffer, n int) error {
	err := o.e.deliver(
		func(c *conn) error { return c.sendBuffer(t, flags, b, n) },
		func() { o.sent += int64(n) })
	if err != nil {
		o.lost = true
	}
	return err
}
