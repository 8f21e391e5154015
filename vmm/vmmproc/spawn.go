package vmmproc

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"thaw/vmm/spawner"
)

// child is a started process that nobody has waited for yet.
type child struct {
	pid    int
	pidfd  *os.File
	stderr *os.File   // read end
	done   chan ended // one value, when the process has been reaped
}

// ended is how a process ended.
type ended struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	err    error
}

// spawn starts the binary in its namespaces with control as descriptor 3, which stays the caller's. copied is needed if there
// is a process in its cgroup already.
func spawn(s *Spec, copied bool, control *os.File) (*child, error) {
	// The write end stays blocking: the child's Go runtime would make its poller at the sight of a non-blocking
	// stderr, before it closes what it inherited.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("vmmproc: make pipe for stderr: %w", err)
	}
	theirs := os.NewFile(uintptr(pipe[1]), "thaw-vmm stderr")
	defer theirs.Close()
	unix.SetNonblock(pipe[0], true) // cannot fail on a pipe; a blocking one would still work
	stderr := os.NewFile(uintptr(pipe[0]), "thaw-vmm stderr")

	maker, pid, pidfd, err := spawners.bear(s, copied, theirs, control)
	if pidfd == nil {
		stderr.Close()
		return nil, spawnError(s.Binary, err)
	}
	c := &child{pid: pid, pidfd: pidfd, stderr: stderr, done: make(chan ended, 1)}
	go func() {
		end := c.wait()
		spawners.put(maker)
		c.done <- end
	}()
	if err != nil {
		// It has been killed, and had run nothing.
		<-c.done
		pidfd.Close()
		stderr.Close()
		return nil, spawnError(s.Binary, err)
	}
	return c, nil
}

// wait reaps the process. By pid is safe, since nobody else reaps; signals go through the pidfd, which never means
// another process.
func (c *child) wait() (e ended) {
	raw, err := c.pidfd.SyscallConn()
	if err != nil {
		return ended{err: err}
	}
	// A pidfd can be read when its process has ended (pidfd_open(2)): no thread waits.
	err = raw.Read(func(uintptr) bool {
		for {
			var pid int
			pid, e.err = syscall.Wait4(c.pid, &e.status, syscall.WNOHANG, &e.usage)
			if e.err != syscall.EINTR {
				return pid != 0
			}
		}
	})
	if err != nil {
		e.err = err
	}
	return e
}

// spawnError tells a host that cannot isolate from a binary that cannot be run.
func spawnError(binary string, err error) error {
	var failed *spawner.Error
	if !errors.As(err, &failed) {
		return fmt.Errorf("vmmproc: start %s: %w", binary, err)
	}
	switch failed.Errno {
	case unix.EPERM, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS, unix.EBUSY, unix.EOPNOTSUPP:
		// Namespaces that are off or used up (clone(2), user_namespaces(7)), or a cgroup that takes no process.
		return fmt.Errorf("vmmproc: start %s in namespaces: %w: %w", binary, ErrNotIsolated, err)
	default:
		return fmt.Errorf("vmmproc: start %s: %w", binary, err)
	}
}
