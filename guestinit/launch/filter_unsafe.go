package launch

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// installFilter puts the seccomp filter on the calling thread alone (no
// TSYNC): the agent's other threads are not jobs.
//
// Precondition: no_new_privs is set on the thread.
func installFilter() error {
	raw, err := program()
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, ins := range raw {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(filter)
	if errno != 0 {
		return errno
	}
	return nil
}
