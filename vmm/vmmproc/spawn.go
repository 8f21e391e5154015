package vmmproc

import (
	"fmt"
	"os"
	"runtime"

	"syscall"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
	"thaw/vmm/jail"
)

// namespaces of every machine. No cgroup namespace: without a mounted file system there is nothing in which the
// process could see its cgroup's name.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS

// child is a started process that nobody has waited for yet.
type child struct {
	pid    int
	pidfd  *os.File
	stderr *os.File     // read end
	done   <-chan ended // one value, when the process has been reaped
}

// ended is how a process ended.
type ended struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	err    error
}

// spawn starts the binary in its namespaces with control as descriptor 3. control stays the caller's.
//
// One goroutine, the keeper, makes the process and waits for it, locked to one thread the whole time. That is for
// PDEATHSIG: the kernel sends it when the *thread* that made the child ends, not the process, and Go ends threads
// whose locked goroutine returns. The keeper's thread lives exactly as long as the child. Waiting by pid is safe,
// since nobody else reaps; signals go through the pidfd, which never means another process.
func spawn(s *Spec, control *os.File) (*child, error) {
	exe, err := openBinary(s.Binary)
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("vmmproc: open: %w", err)
	}
	defer null.Close()
	// The write end stays blocking: the child's Go runtime would make its poller at the sight of a non-blocking
	// stderr, before it closes what it inherited.
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("vmmproc: make pipe for stderr: %w", err)
	}
	defer unix.Close(pipe[1])
	unix.SetNonblock(pipe[0], true) // cannot fail on a pipe; a blocking one would still work
	stderr := os.NewFile(uintptr(pipe[0]), "thaw-vmm stderr")

	controlFD, err := unixfd.Number(control)
	if err != nil {
		stderr.Close()
		return nil, err
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Env: environment(),
		// jail.Control and jail.FirstFile are positions in this list.
		Files: []uintptr{null.Fd(), null.Fd(), uintptr(pipe[1]), uintptr(controlFD), exe.Fd()},
		Sys: &syscall.SysProcAttr{
			Cloneflags:  namespaces,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(s.UID), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: int(s.GID), Size: 1}},
			// Allowed for one call: the child drops the daemon's supplementary groups before it runs the binary.
			GidMappingsEnableSetgroups: true,
			Credential:                 &syscall.Credential{Uid: 0, Gid: 0},
			Setsid:                     true, // no controlling terminal
			Pdeathsig:                  unix.SIGKILL,
			PidFD:                      &pidfd,
		},
	}
	if s.Cgroup != nil {
		cgroup, err := unixfd.Number(s.Cgroup)
		if err != nil {
			stderr.Close()
			return nil, err
		}
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, cgroup
	}

	type started struct {
		pid int
		err error
	}
	start := make(chan started, 1)
	done := make(chan ended, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// By descriptor, because the slot's user may not be able to walk to the path.
		pid, err := syscall.ForkExec(fmt.Sprintf("/proc/self/fd/%d", jail.FirstFile), []string{"thaw-vmm"}, attr)
		start <- started{pid, err}
		if err == nil {
			done <- wait(pid)
		}
	}()
	got := <-start
	runtime.KeepAlive(exe)
	runtime.KeepAlive(null)
	if got.err != nil {
		stderr.Close()
		return nil, spawnError(s.Binary, got.err)
	}
	if pidfd < 0 {
		// Before Linux 5.4. Nobody else reaps it, so the number still means our child.
		unix.Kill(got.pid, unix.SIGKILL)
		stderr.Close()
		return nil, fmt.Errorf("vmmproc: start %s: %w: the kernel has no pidfds", s.Binary, ErrNotIsolated)
	}
	return &child{pid: got.pid, pidfd: os.NewFile(uintptr(pidfd), "pidfd"), stderr: stderr, done: done}, nil
}

// spawnError tells a host that cannot isolate from a binary that cannot be run.
func spawnError(binary string, err error) error {
	switch err {
	case unix.EPERM, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS, unix.EBUSY, unix.EOPNOTSUPP:
		// Namespaces that are off or used up (clone(2), user_namespaces(7)), or a cgroup that takes no process.
		return fmt.Errorf("vmmproc: start %s in namespaces: %w: %w", binary, ErrNotIsolated, err)
	default:
		return fmt.Errorf("vmmproc: start %s: %w", binary, err)
	}
}

// wait reaps pid.
func wait(pid int) ended {
	var e ended
	for {
		_, e.err = syscall.Wait4(pid, &e.status, 0, &e.usage)
		if e.err != syscall.EINTR {
			return e
		}
	}
}

func openBinary(path string) (*os.File, error) {
	exe, err := os.OpenFile(path, unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("vmmproc: thaw-vmm binary: %w", err)
	}
	info, err := exe.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Mode().Perm()&0o001 == 0) {
		err = fmt.Errorf("%s: not a file that every user may execute", path)
	}
	if err != nil {
		exe.Close()
		return nil, fmt.Errorf("vmmproc: thaw-vmm binary: %w", err)
	}
	return exe, nil
}

// environment is all that the child gets: settings of the Go runtime.
func environment() []string {
	return []string{
		// Set, so that the runtime does not follow the cgroup's CPU limit through a descriptor of its own. One,
		// because the calls in all threads that the jail needs cost more with each thread; the child raises it.
		"GOMAXPROCS=1",
		// The heap is small and guest memory is not in it. A collection in the middle of a restore would cost
		// more than what it frees: the limit alone decides.
		"GOGC=off",
		"GOMEMLIMIT=16MiB",
	}
}
