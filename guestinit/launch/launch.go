// Package launch starts jobs with everything taken from them that C2 names,
// and does so without a second program.
//
// The usual way is a stage: the agent executes itself again, the copy drops
// its rights and then executes the job. In a guest on a pvm host that costs
// the start of a Go runtime, 5 ms and more of page faults, for each exec; a
// spare stage kept ready only moves the cost to the next exec. But the
// attributes in question belong to a thread on Linux, and a child gets those
// of the thread that forks it:
//
//	no_new_privs, seccomp filter, capability      set once, when the launcher's
//	bounding set, securebits                      thread starts
//	groups, gid, uid, session, cgroup, stdio      by the child, between clone and
//	                                              execve (syscall.ForkExec)
//	rlimits                                       by the launcher with prlimit, while the
//	                                              child stands still (see below)
//
// So one thread of the agent is given the job's restrictions for good, and
// forks every job. It is a goroutine locked to its thread; the Go runtime
// makes no new thread from a locked one, so the restrictions spread to jobs
// alone.
//
// Resource limits are the exception: they belong to the process. The child
// inherits the agent's own, which in a guest are a job's defaults, and a job
// that needs no others just starts. Else the child asks to be traced before
// execve, and stops with SIGTRAP behind it, before its first instruction; the
// launcher then sets its limits and lets go. There is no instant in which the
// job runs without them.
//
//	launcher                        child
//	   │ clone3(VFORK, INTO_CGROUP) ─▶ setsid, setgroups, setgid, setuid,
//	   │    (suspended)                chdir, dup3, PTRACE_TRACEME
//	   │ ◀──────────────────────────── execve
//	   │ wait4 ◀────────────────────── stop (SIGTRAP)
//	   │ prlimit × n
//	   │ PTRACE_DETACH ──────────────▶ first instruction
//
// Measured in a guest of a busy pvm host, best of 200: fork, exec and wait of
// a static `true` 1.3 ms by itself and 2.0 ms as an exec of the agent's, of
// which 0.3 ms pass after its end; with limits to set 0.2 ms more. On the host
// itself a start through the launcher costs what os/exec does (1.4 and 1.2 ms).
package launch

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"thaw/guestinit/reaper"
)

// Rlimit is one resource limit of a job. Limits only ever take: a value above
// the hard limit of the launcher's process means that one.
type Rlimit struct {
	Resource int // unix.RLIMIT_…
	Soft     uint64
	Hard     uint64
}

// Spec says what to start.
type Spec struct {
	Path     string // of the program; relative ones are below Dir
	Argv     []string
	Env      []string
	Dir      string
	UID, GID uint32 // never 0
	CgroupFD int    // directory of the cgroup it is born in
	Stdio    [3]int // descriptors for 0, 1, 2; they stay the caller's
	ExtraFD  int    // descriptor for 3, or 0 for none; it stays the caller's
	Rlimits  []Rlimit
}

// Launcher starts jobs from its restricted thread, one at a time. Safe for
// concurrent use.
type Launcher struct {
	requests chan request
	limits   chan limitRequest
	done     chan struct{}
	own      [nRlimits]unix.Rlimit // of this process, by resource
}

// nRlimits is RLIM_NLIMITS.
const nRlimits = 16

type request struct {
	spec   Spec
	answer chan<- answer
}

type answer struct {
	proc *reaper.Proc
	err  error
}

// ErrClosed is returned by Start after Close.
var ErrClosed = errors.New("launch: launcher is closed")

// New starts the launcher's thread and restricts it. It fails if any
// restriction cannot be had: no job is ever started with less.
func New(r *reaper.Reaper) (*Launcher, error) {
	l := &Launcher{requests: make(chan request), limits: make(chan limitRequest), done: make(chan struct{})}
	for resource := range l.own {
		if err := unix.Getrlimit(resource, &l.own[resource]); err != nil {
			return nil, fmt.Errorf("launch: get rlimit %d: %w", resource, err)
		}
	}
	// Whatever this process was itself started with is not for jobs. Go opens
	// everything else with close-on-exec.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return nil, fmt.Errorf("launch: mark descriptors: %w", err)
	}
	ready := make(chan error)
	go l.run(r, ready)
	if err := <-ready; err != nil {
		return nil, err
	}
	return l, nil
}

// run is the launcher's thread. It never unlocks: when it returns, the
// runtime ends the thread with the goroutine, so a restricted thread is never
// used for anything else.
func (l *Launcher) run(r *reaper.Reaper, ready chan<- error) {
	runtime.LockOSThread()
	err := restrict()
	ready <- err
	if err != nil {
		return
	}
	for {
		select {
		case req := <-l.requests:
			p, err := r.Start(func() (int, *reaper.Status, error) { return l.start(req.spec) })
			req.answer <- answer{p, err}
		case req := <-l.limits:
			req.answer <- l.limit(req)
		case <-l.done:
			return
		}
	}
}

// Start starts a job. An error holds the errno of the step that failed, that
// of execve as a rule.
func (l *Launcher) Start(spec Spec) (*reaper.Proc, error) {
	if spec.UID == 0 || spec.GID == 0 {
		return nil, errors.New("launch: refuse to start a job as root")
	}
	ch := make(chan answer, 1)
	select {
	case l.requests <- request{spec, ch}:
	case <-l.done:
		return nil, ErrClosed
	}
	a := <-ch
	return a.proc, a.err
}

// Close ends the thread. Jobs go on.
func (l *Launcher) Close() { close(l.done) }

// start forks, limits and releases one job, on the launcher's thread.
func (l *Launcher) start(spec Spec) (int, *reaper.Status, error) {
	limits := l.toSet(spec.Rlimits)
	files := []uintptr{uintptr(spec.Stdio[0]), uintptr(spec.Stdio[1]), uintptr(spec.Stdio[2])}
	if spec.ExtraFD != 0 {
		files = append(files, uintptr(spec.ExtraFD))
	}
	pid, err := syscall.ForkExec(spec.Path, spec.Argv, &syscall.ProcAttr{
		Dir:   spec.Dir,
		Env:   spec.Env,
		Files: files,
		Sys: &syscall.SysProcAttr{
			Setsid:      true,
			Credential:  &syscall.Credential{Uid: spec.UID, Gid: spec.GID}, // and no supplementary group
			UseCgroupFD: true,
			CgroupFD:    spec.CgroupFD,
			Ptrace:      len(limits) > 0,
		},
	})
	if err != nil {
		return 0, nil, fmt.Errorf("launch: start %q: %w", spec.Path, err)
	}
	if len(limits) == 0 {
		return pid, nil, nil
	}
	ended, err := release(pid, limits)
	if err != nil {
		// It still stands behind its execve, or is dying. It never ran.
		_ = syscall.Kill(pid, syscall.SIGKILL)
		return 0, nil, fmt.Errorf("launch: limit %q: %w", spec.Path, err)
	}
	return pid, ended, nil
}

// toSet returns the limits that a child does not inherit as they should be.
func (l *Launcher) toSet(want []Rlimit) []Rlimit {
	var out []Rlimit
	for _, r := range want {
		own := l.own[r.Resource]
		r.Soft, r.Hard = min(r.Soft, own.Max), min(r.Hard, own.Max)
		if r.Soft != own.Cur || r.Hard != own.Max {
			out = append(out, r)
		}
	}
	return out
}

// release waits for the stop behind execve, sets the limits and detaches. It
// returns the status if the child was killed before.
func release(pid int, limits []Rlimit) (*reaper.Status, error) {
	for {
		var s reaper.Status
		_, err := syscall.Wait4(pid, &s.Wait, syscall.WALL, &s.Rusage)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil:
			return nil, fmt.Errorf("wait for stop: %w", err)
		case s.Wait.Exited(), s.Wait.Signaled():
			return &s, nil
		}
		if s.Wait.Stopped() && s.Wait.StopSignal() == syscall.SIGTRAP {
			break
		}
		// Another process of the same user sent a signal; it is delivered.
		if err := syscall.PtraceCont(pid, int(s.Wait.StopSignal())); err != nil {
			return nil, fmt.Errorf("go on to stop: %w", err)
		}
	}
	for _, r := range limits {
		lim := unix.Rlimit{Cur: r.Soft, Max: r.Hard}
		if err := unix.Prlimit(pid, r.Resource, &lim, nil); err != nil {
			return nil, fmt.Errorf("set rlimit %d: %w", r.Resource, err)
		}
	}
	// ESRCH: killed since; the reaper will collect it.
	if err := syscall.PtraceDetach(pid); err != nil && !errors.Is(err, syscall.ESRCH) {
		return nil, fmt.Errorf("detach: %w", err)
	}
	return nil, nil
}
