package jail

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// installFilter puts the filter on all threads at once (SECCOMP_FILTER_FLAG_TSYNC, seccomp(2)).
//
// When one thread cannot take the filter, the kernel installs it nowhere and returns that thread's id, with no error
// number.
func installFilter(raw []bpf.RawInstruction) error {
	if len(raw) == 0 || len(raw) > unix.BPF_MAXINSNS {
		return fmt.Errorf("filter of %d instructions, most is %d", len(raw), unix.BPF_MAXINSNS)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, in := range raw {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	if thread != 0 {
		return fmt.Errorf("thread %d cannot take the filter", thread)
	}
	return nil
}
