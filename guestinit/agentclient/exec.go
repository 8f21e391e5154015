package agentclient

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"thaw/guestinit/agentproto"
)

// ExecIO holds the standard streams of an exec. A nil Stdin is /dev/null, a
// nil Stdout or Stderr discards. A writer that blocks blocks the job (unless
// its output is capped); one that fails cancels it.
type ExecIO struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// StdoutMax and StderrMax are the most bytes that a guest may send to an
	// attached process: the caps that its exec was started with. 0 is no
	// bound. Exec takes them from its request.
	StdoutMax, StderrMax int64
}

// discard fills in the writers that are missing.
func (e *ExecIO) discard() {
	if e.Stdout == nil {
		e.Stdout = io.Discard
	}
	if e.Stderr == nil {
		e.Stderr = io.Discard
	}
}

// Process is a running exec.
type Process struct {
	c       *Client
	cn      *conn
	what    string // for errors
	grace   time.Duration
	io      ExecIO
	started agentproto.Started
	credit  *credit

	// mu is held while a control frame is sent, so that none can follow the
	// exec's end into the next exchange of the connection.
	mu    sync.Mutex
	ended bool // protected by mu

	cancelOnce sync.Once
	cancelCh   chan struct{}
	stdinDone  chan struct{} // closed when no more stdin will be written

	done   chan struct{} // closed when status and err are set
	status agentproto.ExitStatus
	err    error
}

// cancelPatience is how long after its grace a cancelled exec may take to
// report its end before the connection is closed.
const cancelPatience = 5 * time.Second

// controlPatience is how long the agent may take to read a control frame.
const controlPatience = 5 * time.Second

// Exec starts a program. When ctx ends while it starts, Exec fails; later, it
// is cancelled as by Cancel. Every Process must be waited for.
func (c *Client) Exec(ctx context.Context, req agentproto.ExecRequest, stdio ExecIO) (*Process, error) {
	req.Stdin = stdio.Stdin != nil
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("agentclient: exec: %w: %w", agentproto.ErrBadRequest, err)
	}
	stdio.discard()
	cn, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	p := &Process{c: c, cn: cn, what: fmt.Sprintf("exec %q", req.Argv[0]), grace: req.Grace, io: stdio}
	if p.grace == 0 {
		p.grace = agentproto.DefaultGrace
	}
	p.io.StdoutMax, p.io.StderrMax = req.StdoutCap, req.StderrCap
	started, err := p.start(ctx, agentproto.FrameExec, req)
	if err != nil {
		return nil, err
	}
	p.run(ctx, started, agentproto.StdinWindow)
	return p, nil
}

// start sends the request that begins p and reads the answer. It deals with
// the connection if it fails.
func (p *Process) start(ctx context.Context, t agentproto.FrameType, req any) (agentproto.Started, error) {
	started, err := startExec(ctx, p.cn, t, req)
	if err == nil {
		return started, nil
	}
	var reported *agentproto.Error
	if errors.As(err, &reported) {
		p.c.put(p.cn)
	} else {
		p.cn.nc.Close()
	}
	return started, fmt.Errorf("agentclient: %s: %w", p.what, err)
}

// run moves the streams of what was started, with credit for standard input.
func (p *Process) run(ctx context.Context, started agentproto.Started, credit int) {
	p.started = started
	p.credit = newCredit(credit)
	p.cancelCh, p.stdinDone, p.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	if p.io.Stdin != nil {
		go p.sendStdin()
	} else {
		close(p.stdinDone)
	}
	go p.receive()
	go p.watch(ctx)
}

func startExec(ctx context.Context, cn *conn, t agentproto.FrameType, req any) (agentproto.Started, error) {
	var started agentproto.Started
	stop := context.AfterFunc(ctx, func() { cn.nc.Close() })
	err := cn.send(t, req)
	if err == nil {
		var f agentproto.Frame
		if f, err = cn.next(); err == nil {
			if f.Type != agentproto.FrameStarted {
				err = unexpected(f)
			} else {
				err = agentproto.Decode(f.Payload, &started)
			}
		}
	}
	if !stop() {
		return started, context.Cause(ctx)
	}
	return started, err
}

// PID is the process id in the guest.
func (p *Process) PID() int { return int(p.started.PID) }

// ExecID numbers the execs of one agent.
func (p *Process) ExecID() uint64 { return p.started.ExecID }

// Skipped names limits that the guest could not enforce.
func (p *Process) Skipped() []string { return p.started.Skipped }

// Signal sends a signal to the exec's process group. It does not fail if the
// exec has ended.
func (p *Process) Signal(sig int) error {
	m := agentproto.Signal{Number: int32(sig)}
	if err := m.Validate(); err != nil {
		return fmt.Errorf("agentclient: signal: %w: %w", agentproto.ErrBadRequest, err)
	}
	if err := p.control(agentproto.FrameSignal, m); err != nil {
		return fmt.Errorf("agentclient: signal: %w", err)
	}
	return nil
}

// control sends a frame to the running exec, and nothing to one that ended. A
// guest that takes nothing for controlPatience has its connection closed: who
// wants to end a program must not wait for it.
func (p *Process) control(t agentproto.FrameType, v any) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return nil
	}
	// Also ends a write of standard input that is in the way.
	if err := p.cn.nc.SetWriteDeadline(time.Now().Add(controlPatience)); err != nil {
		return err
	}
	if err := p.cn.send(t, v); err != nil {
		p.cn.nc.Close()
		return err
	}
	return p.cn.nc.SetWriteDeadline(time.Time{})
}

// Cancel ends the exec: SIGTERM, then after its grace SIGKILL to all of its
// processes. Wait tells the end, with agentproto.CauseCancelled.
func (p *Process) Cancel() { p.cancelOnce.Do(func() { close(p.cancelCh) }) }

// Wait waits for the end of the exec and of its output. The error is about
// the connection or a writer of ExecIO; how the program ended is in the
// status.
func (p *Process) Wait() (agentproto.ExitStatus, error) {
	<-p.done
	return p.status, p.err
}

// watch cancels the exec when it is asked to.
func (p *Process) watch(ctx context.Context) {
	select {
	case <-p.done:
		return
	case <-p.cancelCh:
	case <-ctx.Done():
	}
	if err := p.control(agentproto.FrameCancel, nil); err != nil {
		p.cn.nc.Close()
		return
	}
	t := time.NewTimer(p.grace + cancelPatience)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		p.cn.nc.Close() // the agent kills the exec of a lost connection
	}
}

// receive moves output until the exit status.
func (p *Process) receive() {
	defer close(p.done)
	status, err := p.stream()
	// No frame of this exec may follow the next request on the connection.
	p.credit.close()
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	if err != nil {
		p.cn.nc.Close()
		p.err = fmt.Errorf("agentclient: %s: %w", p.what, err)
		return
	}
	p.status = status
	select {
	case <-p.stdinDone:
		p.c.put(p.cn)
	default:
		// Its reader blocks in the caller's Stdin, perhaps for ever.
		p.cn.nc.Close()
	}
}

// stream handles the guest's frames. A failing writer cancels the exec, and
// its error is returned once the guest has ended it.
func (p *Process) stream() (agentproto.ExitStatus, error) {
	var writeErr error
	stdout := &sink{w: p.io.Stdout, limit: p.io.StdoutMax}
	stderr := &sink{w: p.io.Stderr, limit: p.io.StderrMax}
	for {
		f, err := p.cn.next()
		if err != nil {
			return agentproto.ExitStatus{}, errors.Join(writeErr, err)
		}
		switch f.Type {
		case agentproto.FrameStdout:
			err = stdout.write(f.Payload)
		case agentproto.FrameStderr:
			err = stderr.write(f.Payload)
		case agentproto.FrameStdinCredit:
			var n uint32
			if n, err = agentproto.ParseCredit(f.Payload); err == nil {
				err = p.credit.add(int(n))
			}
		case agentproto.FrameExit:
			var s agentproto.ExitStatus
			if err := agentproto.Decode(f.Payload, &s); err != nil {
				return s, err
			}
			return s, writeErr
		default:
			return agentproto.ExitStatus{}, unexpected(f)
		}
		if errors.Is(err, agentproto.ErrProtocol) {
			return agentproto.ExitStatus{}, err
		}
		if err != nil && writeErr == nil {
			writeErr = err
			p.Cancel()
		}
	}
}

// sink passes output on and holds the guest to the cap.
type sink struct {
	w      io.Writer
	limit  int64
	got    int64
	failed bool
}

func (s *sink) write(b []byte) error {
	if s.got += int64(len(b)); s.limit > 0 && s.got > s.limit {
		return fmt.Errorf("agent sent more output than the cap of %d bytes: %w", s.limit, agentproto.ErrProtocol)
	}
	if s.failed {
		return nil
	}
	if _, err := s.w.Write(b); err != nil {
		s.failed = true
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// sendStdin copies the caller's reader to the job, as fast as the job reads.
func (p *Process) sendStdin() {
	defer close(p.stdinDone)
	buf := make([]byte, 32<<10)
	for {
		n, err := p.io.Stdin.Read(buf)
		for b := buf[:n]; len(b) > 0; {
			m, ok := p.credit.take(len(b))
			if !ok || p.cn.sendData(agentproto.FrameStdin, 0, b[:m]) != nil {
				return
			}
			b = b[m:]
		}
		if err != nil {
			// The job sees the end of input, also where the reader failed:
			// there is no way to tell it more.
			if p.credit.open() {
				_ = p.cn.sendData(agentproto.FrameStdin, agentproto.FlagEnd, nil)
			}
			return
		}
	}
}
