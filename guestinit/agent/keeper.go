package agent

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/cgroup"
	"thaw/guestinit/warm"
)

// keeper is a process that shares an interpreter's memory and never runs: it
// stands in a frozen group of its own, so a job, which can write what it would
// do next, has nothing of it but the right to kill it. With it the job's end is
// seen at once; without, only after the kernel has taken its memory apart.
type keeper struct {
	s     *Server
	group *cgroup.Group
	once  sync.Once
	gone  chan struct{} // closed when its memory is free, or its group given up
}

// keeperLinger is how long a keeper stays after the job has closed its control
// socket: a machine of one job is destroyed before that.
const keeperLinger = 500 * time.Millisecond

// lingering are the keepers whose interpreters have ended.
type lingering struct {
	mu      sync.Mutex
	keepers map[*keeper]struct{} // protected by mu
}

// release lets the memory of all go, and waits until it is free, at most until
// the deadline.
func (l *lingering) release(deadline time.Time) error {
	l.mu.Lock()
	keepers := slices.Collect(maps.Keys(l.keepers))
	l.mu.Unlock()
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	for _, k := range keepers {
		k.release()
	}
	for _, k := range keepers {
		select {
		case <-k.gone:
		case <-t.C:
			return fmt.Errorf("agent: free the memory of ended interpreters: %w", os.ErrDeadlineExceeded)
		}
	}
	return nil
}

func (l *lingering) add(k *keeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.keepers == nil {
		l.keepers = make(map[*keeper]struct{})
	}
	l.keepers[k] = struct{}{}
}

func (l *lingering) remove(k *keeper) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.keepers, k)
}

// newKeeper freezes the process that an interpreter says is its keeper.
func newKeeper(e *execution, pid int) (*keeper, error) {
	pids, err := e.group.Procs()
	if err != nil {
		return nil, err
	}
	if pid == e.proc.PID || !slices.Contains(pids, pid) {
		return nil, fmt.Errorf("agent: process %d is not the interpreter's: %w", pid, warm.ErrProtocol)
	}
	g, err := e.s.cfg.Cgroups.New()
	if err != nil {
		return nil, err
	}
	if err := g.Freeze(); err != nil {
		g.Remove()
		return nil, err
	}
	if err := g.Add(pid); err != nil {
		g.Remove()
		return nil, err
	}
	// A quota means nothing to who never runs. But the kernel rewrites some of its own
	// code for the first, which takes milliseconds: now, and not in a job. It is all
	// there is: its death, which takes the memory apart, is paid from it too, and who
	// is still dying cannot be frozen.
	if err := g.SetLimits(cgroup.Limits{CPUMilli: 1000 * int64(runtime.NumCPU())}); err != nil {
		g.Remove()
		return nil, err
	}
	return &keeper{s: e.s, group: g, gone: make(chan struct{})}, nil
}

// release lets the memory go. Safe to call more than once, and without a keeper.
func (k *keeper) release() {
	if k == nil {
		return
	}
	k.once.Do(func() {
		removed := k.group.Remove()
		go func() {
			<-removed
			close(k.gone)
		}()
	})
}

// linger releases it a while from now, or when somebody wants the memory.
func (k *keeper) linger() {
	if k == nil {
		return
	}
	k.s.lingering.add(k)
	defer k.s.lingering.remove(k)
	select {
	case <-time.After(keeperLinger):
		k.release()
	case <-k.gone:
	}
	<-k.gone
}

// releaseKeeper releases it a while after the process has ended or has become
// another by execve: both close its end of the control socket.
//
// Preconditions: nobody receives from the socket any more.
func (it *interpreter) releaseKeeper() {
	raw, err := it.e.control.SyscallConn()
	if err == nil && it.e.control.SetReadDeadline(time.Time{}) == nil {
		_ = raw.Read(func(fd uintptr) bool { // an error: supervise has closed it
			p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
			n, err := unix.Poll(p, 0)
			return err != nil || n > 0
		})
	}
	it.keeper.linger()
}
