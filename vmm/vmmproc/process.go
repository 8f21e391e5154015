package vmmproc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/vmm/vmmproto"
)

// ErrExited is wrapped by requests to a process that has ended.
var ErrExited = errors.New("machine has ended")

// reapTimeout bounds the wait for a killed process; one in an uninterruptible sleep may outlive it.
const reapTimeout = 10 * time.Second

// Process is one thaw-vmm. Its methods may be called from any goroutine.
type Process struct {
	spec    Spec
	child   *child
	control *os.File

	stderr  stderrTail
	drained chan struct{} // stderr is at its end
	read    chan struct{} // the control socket is at its end
	reaped  chan struct{} // the process is gone
	over    chan struct{} // exit is set
	exit    Exit          // read after over

	handlerMu sync.Mutex
	handler   handler // protected by handlerMu

	workers sync.WaitGroup // pinger, connect requests
	sendMu  sync.Mutex     // keeps messages in order

	mu          sync.Mutex
	started     chan *vmmproto.Started           // protected by mu; nil once started
	phases      []vmmproto.Phase                 // protected by mu
	verdict     *verdict                         // protected by mu; first one wins
	console     []byte                           // protected by mu; latest tail that was sent
	calls       map[uint64]chan<- vmmproto.Reply // protected by mu
	lastCall    uint64                           // protected by mu
	connects    int                              // protected by mu; outstanding
	closeOnce   sync.Once
	closeResult error
}

// Start starts a process, hands it the machine's description and files, and waits until it has made the machine.
// The error is a *[StartError] when there was a process, and wraps [ErrNotIsolated] when there could be none.
// ctx bounds Start only.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	began := time.Now()
	spec.setDefaults()
	message, files, err := spec.message()
	if err != nil {
		return nil, err
	}
	if err := spec.isolated(); err != nil {
		return nil, err
	}
	packet, err := vmmproto.Encode(message)
	if err != nil {
		return nil, fmt.Errorf("vmmproc: start: %w", err)
	}
	var h handler
	if spec.Shell {
		var theirs *os.File
		if h.conn, theirs, err = unixfd.Pair(unixfd.SeqPacket); err != nil {
			return nil, err
		}
		defer theirs.Close()
		files = append(files, theirs)
	}
	p, err := newProcess(spec, packet, files, began)
	if err != nil {
		h.close()
		return nil, err
	}
	p.handler = h
	go func() { p.stderr.drain(p.child.stderr); close(p.drained) }()
	go p.supervise()
	started := p.started
	go func() { p.readControl(); close(p.read) }()

	if err := p.awaitStarted(ctx, started); err != nil {
		p.Close()
		return nil, err
	}
	p.workers.Add(1)
	go p.ping()
	return p, nil
}

// newProcess starts the child with its first message.
func newProcess(spec Spec, packet []byte, files []*os.File, began time.Time) (*Process, error) {
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		return nil, err
	}
	// The message waits in the socket: the child finds it there when it is born.
	if err := unixfd.Send(ours, packet, files...); err != nil {
		ours.Close()
		theirs.Close()
		return nil, fmt.Errorf("vmmproc: hand over descriptors: %w", err)
	}
	c, err := spawn(&spec, false, theirs)
	theirs.Close() // so that its end is seen when the child's copy closes
	if err != nil {
		ours.Close()
		return nil, err
	}

	return &Process{
		spec: spec, child: c, control: ours,
		drained: make(chan struct{}), read: make(chan struct{}), reaped: make(chan struct{}), over: make(chan struct{}),
		started: make(chan *vmmproto.Started, 1),
		phases:  []vmmproto.Phase{{Name: "spawn", Micros: time.Since(began).Microseconds()}},
		calls:   map[uint64]chan<- vmmproto.Reply{},
	}, nil
}

func (p *Process) awaitStarted(ctx context.Context, started <-chan *vmmproto.Started) error {
	timeout := time.NewTimer(p.spec.StartTimeout)
	defer timeout.Stop()
	select {
	case m := <-started:
		p.noteStarted(m)
		return nil
	case <-p.over:
		select {
		case m := <-started: // it came first, and then the end
			p.noteStarted(m)
			return nil
		default:
		}
	case <-timeout.C:
		p.kill(verdict{reason: StartTimeout, detail: fmt.Sprintf("no machine after %v", p.spec.StartTimeout)})
	case <-ctx.Done():
		p.kill(verdict{reason: Killed, detail: ctx.Err().Error()})
	}
	e, err := p.waitReaped()
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	stage := ""
	if p.verdict != nil {
		stage = p.verdict.stage
	}
	return &StartError{Stage: stage, Exit: e}
}

func (p *Process) noteStarted(m *vmmproto.Started) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.phases = append(p.phases, m.Phases...)
}

// PID is the process's id in the daemon's pid namespace. It may be another process's once [Process.Wait] returned.
func (p *Process) PID() int { return p.child.pid }

// Phases says what the start was spent on: "spawn" by the daemon, then the child's own phases.
func (p *Process) Phases() []vmmproto.Phase {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]vmmproto.Phase(nil), p.phases...)
}

// Wait returns how the process ended, or ctx's error before that.
func (p *Process) Wait(ctx context.Context) (Exit, error) {
	select {
	case <-p.over:
		return p.exit, nil
	case <-ctx.Done():
		return Exit{}, ctx.Err()
	}
}

// Kill ends the process at once, without asking it.
func (p *Process) Kill() { p.kill(verdict{reason: Killed}) }

// Close kills the process if it still runs, waits until it is reaped, and frees everything. It returns an error when
// the kernel does not let go of the process in time; calling it again returns the same.
func (p *Process) Close() error {
	p.closeOnce.Do(func() {
		p.Kill()
		_, p.closeResult = p.waitReaped()
		p.control.Close()
		<-p.read
		p.workers.Wait()
		p.stopHandler()
		if p.closeResult == nil {
			p.child.pidfd.Close()
		}
	})
	return p.closeResult
}

func (p *Process) waitReaped() (Exit, error) {
	ctx, cancel := context.WithTimeout(context.Background(), reapTimeout)
	defer cancel()
	e, err := p.Wait(ctx)
	if err != nil {
		return Exit{}, fmt.Errorf("vmmproc: process %d is still there %v after it was killed (state %s)",
			p.child.pid, reapTimeout, processState(p.child.pid))
	}
	return e, nil
}

// kill is for verdicts that come from outside of the process: they do not count when it has ended before.
func (p *Process) kill(v verdict) {
	select {
	case <-p.reaped:
	default:
		p.condemn(v)
	}
}

// condemn is for verdicts by what the process has sent, which may be read after its end.
func (p *Process) condemn(v verdict) {
	p.record(v)
	// ESRCH: it has gone already.
	if fd, err := unixfd.Number(p.child.pidfd); err == nil {
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// record keeps the first verdict.
func (p *Process) record(v verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verdict == nil {
		p.verdict = &v
	}
}

// supervise makes the Exit when the process is gone and what it left behind has been read.
func (p *Process) supervise() {
	end := <-p.child.done
	close(p.reaped)
	// Its last words may still be in the socket and in the pipe. Both have no other writer, since it was alone in its
	// pid namespace, so both readers come to an end.
	<-p.read
	<-p.drained
	p.child.stderr.Close()

	p.mu.Lock()
	e := judge(p.verdict, end.status, &end.usage, p.stderr.text())
	if end.err != nil {
		e.Reason, e.Detail = Crashed, fmt.Sprintf("wait: %v", end.err)
	}
	if e.Console == nil {
		e.Console = p.console
	}
	p.exit = e
	p.mu.Unlock()
	close(p.over)
}
