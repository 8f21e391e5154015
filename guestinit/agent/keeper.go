package agent

import (
	"fmt"
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
	group *cgroup.Group
	once  sync.Once
}

// keeperLinger is how long a keeper stays after the job has closed its control
// socket: a machine of one job is destroyed before that.
const keeperLinger = 500 * time.Millisecond

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
	// code for the first, which takes milliseconds: now, and not in a job.
	if err := g.SetLimits(cgroup.Limits{CPUMilli: 10}); err != nil {
		g.Remove()
		return nil, err
	}
	return &keeper{group: g}, nil
}

// release lets the memory go. Safe to call more than once, and without a keeper.
func (k *keeper) release() {
	if k != nil {
		k.once.Do(k.group.Remove)
	}
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
	time.Sleep(keeperLinger)
	it.keeper.release()
}
