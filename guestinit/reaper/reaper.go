// Package reaper collects every dead child of PID 1: the programs that the
// agent started and the orphans that the kernel hands to it.
//
// One place alone calls wait4, so no status is stolen: nothing in the agent
// may use os/exec or os.Process.Wait. Wait, start and signal share one lock,
// which gives two guarantees:
//   - a status is never handed out before its process is registered, since a
//     start holds the lock until then;
//   - a signal never reaches a recycled process id, since a process that was
//     not collected yet still owns its id.
package reaper

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// ErrGone is returned by Signal for a process that ended.
var ErrGone = errors.New("reaper: process has ended")

// Status tells how a process ended.
type Status struct {
	Wait   syscall.WaitStatus
	Rusage syscall.Rusage // of the process and the children it waited for
}

// Reaper collects children. The zero value is not usable; see New.
type Reaper struct {
	mu    sync.Mutex
	procs map[int]*Proc // running children that were started here; protected by mu
}

// Proc is one started child.
type Proc struct {
	PID  int
	r    *Reaper
	done chan struct{}

	ended  bool   // protected by r.mu
	status Status // written once, before done is closed
}

// New returns a Reaper. Run collects.
func New() *Reaper { return &Reaper{procs: make(map[int]*Proc)} }

// Run collects children at every SIGCHLD until ctx ends.
func (r *Reaper) Run(ctx context.Context) {
	// One slot is enough: a signal that is dropped because one is waiting
	// means nothing more, since Poll collects all that there is.
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGCHLD)
	defer signal.Stop(ch)
	r.Poll()
	for {
		select {
		case <-ch:
			r.Poll()
		case <-ctx.Done():
			return
		}
	}
}

// Poll collects every child that is dead by now.
func (r *Reaper) Poll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var s Status
		pid, err := syscall.Wait4(-1, &s.Wait, syscall.WNOHANG, &s.Rusage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 { // ECHILD: no children at all
			return
		}
		if p := r.procs[pid]; p != nil && (s.Wait.Exited() || s.Wait.Signaled()) {
			p.end(s)
		}
	}
}

// Start registers the process that start makes, and holds every collection
// back until then. Where start saw the process end already, it returns the
// status, else nil. start must not call the Reaper.
func (r *Reaper) Start(start func() (pid int, ended *Status, err error)) (*Proc, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, ended, err := start()
	if err != nil {
		return nil, err
	}
	p := &Proc{PID: pid, r: r, done: make(chan struct{})}
	r.procs[pid] = p
	if ended != nil {
		p.end(*ended)
	}
	return p, nil
}

// end records the status. Preconditions: r.mu is held.
func (p *Proc) end(s Status) {
	delete(p.r.procs, p.PID)
	p.ended, p.status = true, s
	close(p.done)
}

// Done is closed when the process was collected.
func (p *Proc) Done() <-chan struct{} { return p.done }

// Status returns how the process ended. Preconditions: Done is closed.
func (p *Proc) Status() Status {
	<-p.done
	return p.status
}

// SignalGroup sends sig to the process group that the process leads.
func (p *Proc) SignalGroup(sig syscall.Signal) error {
	p.r.mu.Lock()
	defer p.r.mu.Unlock()
	if p.ended {
		return ErrGone
	}
	if err := syscall.Kill(-p.PID, sig); err != nil {
		if errors.Is(err, syscall.ESRCH) {
			return ErrGone
		}
		return err
	}
	return nil
}
