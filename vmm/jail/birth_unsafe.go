package jail

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// call is one system call of a child.
type call struct {
	number uintptr
	args   [5]uintptr
	want   uintptr // its result
	failed []byte  // text for the case that it is another
}

// callList is a list of calls, with the memory that their arguments point to.
type callList struct {
	calls []call
	keep  []any // on the heap: where an address stays what it is
	pidfd int32 // of the child
	err   error
}

func (l *callList) add(name string, want, number uintptr, args ...uintptr) {
	c := call{number: number, want: want, failed: []byte("thaw-vmm: jail: " + name + ": error 000\n")}
	copy(c.args[:], args)
	l.calls = append(l.calls, c)
}

// number checks that a descriptor is not one that is replaced before it is used.
func (l *callList) number(fd int) uintptr {
	if fd < FirstFile {
		l.err = fmt.Errorf("jail: descriptor %d is too low: %w", fd, unix.EBADF)
	}
	return uintptr(fd)
}

func (l *callList) bytes(b []byte) uintptr {
	l.keep = append(l.keep, b)
	return uintptr(unsafe.Pointer(&b[0]))
}

func (l *callList) buffer(n int) uintptr { return l.bytes(make([]byte, n)) }

func (l *callList) text(s string) uintptr { return l.bytes(append([]byte(s), 0)) }

// texts is an array as execve takes it.
func (l *callList) texts(list ...string) uintptr {
	array := make([]uintptr, 0, len(list)+1)
	for _, s := range list {
		array = append(array, l.text(s))
	}
	array = append(array, 0)
	l.keep = append(l.keep, array)
	return uintptr(unsafe.Pointer(&array[0]))
}

// emptyCapabilities is the header of capset, followed by nothing: the sets are a buffer of zeros.
func emptyCapabilities() []byte {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // Pid 0: the calling thread
	b := make([]byte, unsafe.Sizeof(header))
	*(*unix.CapUserHeader)(unsafe.Pointer(&b[0])) = header
	return b
}

// cloneArgs is struct clone_args of linux/sched.h, version 2.
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// clone makes a process that makes the calls. It has this one's memory, of which a copy would take longer than all else, or
// a copy, but neither a stack nor the Go runtime: nothing but the calls, and no signal, so all are blocked. Without a copy the
// list must be kept until it has become another program, or has ended.
func clone(cgroup int, copied bool, l *callList) (pid, pidfd int, errno unix.Errno) {
	l.pidfd = -1
	// A child of our parent: PDEATHSIG and wait are that one's. The signal of its end is ours then (clone(2)).
	args := &cloneArgs{flags: namespaces | unix.CLONE_PARENT | unix.CLONE_PIDFD, pidfd: uint64(uintptr(unsafe.Pointer(&l.pidfd)))}
	if !copied {
		args.flags |= unix.CLONE_VM
	}
	if cgroup >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(cgroup)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, before := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	r, e := clone3(unsafe.Pointer(args), unsafe.Sizeof(*args), &l.calls[0], uintptr(len(l.calls)))
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&before)), 0, 8, 0, 0)
	if e != 0 {
		// The kernel writes the number before it asks the cgroup (its limit, whether it is still there), and takes it back.
		return 0, -1, unix.Errno(e)
	}
	return int(r), int(l.pidfd), 0
}

// clone3 is the system call. The child makes the calls; it returns in the parent only.
//
//go:noescape
func clone3(args unsafe.Pointer, size uintptr, calls *call, n uintptr) (pid, errno uintptr)
