package vmmproc

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"thaw/internal/unixfd"
	"thaw/vmm/vmmproto"
)

// exitGrace is how long a process may live after its last message, or after it closed its socket.
const exitGrace = 5 * time.Second

// readControl takes messages until the socket or the process ends.
func (p *Process) readControl() {
	buf := make([]byte, vmmproto.MaxMessage)
	for {
		// from thaw-vmm: hostile. No message of its carries a descriptor.
		n, _, err := unixfd.Recv(p.control, buf, 0)
		var bad *unixfd.MessageError
		switch {
		case errors.As(err, &bad):
			p.condemn(verdict{reason: ProtocolError, detail: bad.Error()})
			return
		case err == io.EOF:
			p.expectEnd("closed the control socket and went on")
			return
		case err != nil:
			// Close closes the socket; ECONNRESET is an end with messages unread.
			p.expectEnd("control socket: " + err.Error())
			return
		}
		last, err := p.take(buf[:n])
		if err != nil {
			p.condemn(verdict{reason: ProtocolError, detail: vmmproto.CleanText(err.Error())})
			return
		}
		if last {
			p.expectEnd("reported its end and went on")
			return
		}
	}
}

// expectEnd waits for a process that should be ending by itself.
func (p *Process) expectEnd(otherwise string) {
	timer := time.NewTimer(exitGrace)
	defer timer.Stop()
	select {
	case <-p.reaped:
	case <-timer.C:
		p.condemn(verdict{reason: ProtocolError, detail: otherwise})
	}
}

// take handles one packet and tells whether it was the last. An error is a breach of the protocol.
func (p *Process) take(packet []byte) (last bool, err error) {
	message, err := vmmproto.DecodeFromVMM(packet)
	if err != nil {
		return false, err
	}
	switch m := message.(type) {
	case *vmmproto.Started:
		return false, p.takeStarted(m)
	case *vmmproto.Failed:
		if p.isStarted() {
			return false, errors.New("failed after started")
		}
		p.record(verdict{reason: StartFailed, stage: m.Stage, detail: m.Detail})
		return true, nil
	case *vmmproto.Exited:
		if !p.isStarted() {
			return false, errors.New("exited before started")
		}
		p.record(verdict{reason: Reason(m.Reason), detail: m.Detail, console: m.Console})
		return true, nil
	case *vmmproto.Connect:
		return false, p.takeConnect(m)
	case *vmmproto.Pong:
		p.keepConsole(m.Console)
		return false, p.takeReply(m)
	case *vmmproto.Console:
		p.keepConsole(m.Tail)
		return false, p.takeReply(m)
	case vmmproto.Reply:
		return false, p.takeReply(m)
	default:
		return false, fmt.Errorf("a %s has no place here", m.Kind())
	}
}

func (p *Process) isStarted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started == nil
}

func (p *Process) takeStarted(m *vmmproto.Started) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started == nil {
		return errors.New("started twice")
	}
	p.started <- m
	p.started = nil
	return nil
}

func (p *Process) takeReply(m vmmproto.Reply) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	call, ok := p.calls[m.RequestID()]
	if !ok {
		return fmt.Errorf("%s for request %d, which nobody made", m.Kind(), m.RequestID())
	}
	delete(p.calls, m.RequestID())
	call <- m
	return nil
}

func (p *Process) keepConsole(tail []byte) {
	if len(tail) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.console = tail
}

// refuseAfter is how long a refusal takes: no machine gets more than MaxOutstanding requests in this time out of the
// daemon, however fast its guest dials.
const refuseAfter = 10 * time.Millisecond

// takeConnect asks the daemon's callback, in the background, for a bounded number of requests at a time. A guest can
// dial as often as it likes: the VMM resets what is over the bound and never asks for more.
func (p *Process) takeConnect(m *vmmproto.Connect) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.started != nil {
		return errors.New("connect before started")
	}
	// An answer that the VMM has may still be counted here, but never more than one: see answerConnect.
	if p.connects > vmmproto.MaxOutstanding {
		return fmt.Errorf("more than %d connect requests at a time", vmmproto.MaxOutstanding)
	}
	p.connects++
	p.workers.Add(1)
	go func() {
		defer p.workers.Done()
		p.answerConnect(m)
	}()
	return nil
}

// answerConnect answers a request. It counts until the answer is in the socket: a VMM that asks and does not read
// makes no more than so many goroutines and descriptors of the daemon's wait.
func (p *Process) answerConnect(m *vmmproto.Connect) {
	var answer vmmproto.Message = &vmmproto.Refused{ID: m.ID}
	var files []*os.File
	if p.spec.Connect != nil {
		if stream, err := p.spec.Connect(m.Port); err == nil {
			defer stream.Close()
			answer, files = &vmmproto.Connected{ID: m.ID}, []*os.File{stream}
		}
	}
	if len(files) == 0 {
		select {
		case <-time.After(refuseAfter):
		case <-p.over:
		}
	}
	err := p.send(answer, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.connects--
	}, files...)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.kill(verdict{reason: Hung, detail: "does not read its control socket"})
	}
}
