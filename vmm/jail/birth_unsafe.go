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

// clone makes a process that makes the calls. It is a copy of this one with one thread, in which the Go runtime does not
// work: no allocation, no growing stack, no lock, no signal. So all signals are blocked meanwhile, and the child stays
// within run.
func clone(cgroup int, l *callList) (pid, pidfd int, errno unix.Errno) {
	fd := new(int32)
	*fd = -1
	// A child of our parent: PDEATHSIG and wait are that one's. The signal of its end is ours then (clone(2)).
	args := &cloneArgs{flags: namespaces | unix.CLONE_PARENT | unix.CLONE_PIDFD, pidfd: uint64(uintptr(unsafe.Pointer(fd)))}
	if cgroup >= 0 {
		args.flags |= unix.CLONE_INTO_CGROUP
		args.cgroup = uint64(cgroup)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, before := ^uint64(0), uint64(0)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&before)), 8, 0, 0)
	r, errno := run(args, l.calls)
	syscall.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&before)), 0, 8, 0, 0)
	runtime.KeepAlive(l)
	runtime.KeepAlive(args)
	return int(r), int(*fd), errno
}

// run is clone without its surroundings. It returns in the parent only.
//
//go:nosplit
//go:norace
//go:noinline
func run(args *cloneArgs, calls []call) (pid uintptr, errno unix.Errno) {
	pid, _, errno = syscall.RawSyscall(unix.SYS_CLONE3, uintptr(unsafe.Pointer(args)), unsafe.Sizeof(*args), 0)
	if errno != 0 || pid != 0 {
		return pid, errno
	}
	for i := range calls {
		c := &calls[i]
		r, _, e := syscall.RawSyscall6(c.number, c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], 0)
		if e == 0 && r == c.want {
			continue
		}
		text := c.failed
		for at := len(text) - 2; e > 0; e /= 10 { // "000\n"
			text[at] += byte(e % 10)
			at--
		}
		syscall.RawSyscall(unix.SYS_WRITE, 2, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)))
		break
	}
	for {
		syscall.RawSyscall(unix.SYS_EXIT_GROUP, 1, 0, 0)
	}
}
