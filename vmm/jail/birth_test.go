package jail

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

// A cgroup that takes no process is found after the kernel has written a number for the pidfd: there is none all the same.
func TestNoChild(t *testing.T) {
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "namespaces need root")
	}
	cgroup := fullCgroup(t)
	l := &callList{}
	l.add("exit", 0, unix.SYS_EXIT_GROUP, 0)
	pid, pidfd, errno := clone(cgroup, false, l)
	if pid != 0 || pidfd != -1 || errno != unix.EAGAIN {
		t.Errorf("process %d, pidfd %d, error %v; want none, -1, EAGAIN", pid, pidfd, errno)
	}
}

// fullCgroup makes a cgroup without room for a process. Its number is -1 if it is of version 1: the calling thread is
// in it then, until the test is over.
func fullCgroup(t *testing.T) int {
	t.Helper()
	dir := fmt.Sprintf("/sys/fs/cgroup/jail-test-%d", os.Getpid())
	unified := true
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		unified = false
		dir = fmt.Sprintf("/sys/fs/cgroup/pids/jail-test-%d", os.Getpid())
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		kvmtest.Unavailable(t, "no cgroup: %v", err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(dir+"/pids.max", []byte("0"), 0); err != nil {
		kvmtest.Unavailable(t, "no limit of processes: %v", err)
	}
	if unified {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	thread := []byte(strconv.Itoa(unix.Gettid()))
	if err := os.WriteFile(dir+"/tasks", thread, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile("/sys/fs/cgroup/pids/tasks", thread, 0); err != nil {
			t.Error(err)
		}
	})
	return -1
}
