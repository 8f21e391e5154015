package hugetext

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// collapse makes the range of 2 MiB at an address of a process a huge page.
func collapse(pidfd int, at uint64) error {
	iov := [2]uintptr{uintptr(at), hugeSize} // struct iovec, of the other's memory
	_, _, errno := unix.Syscall6(unix.SYS_PROCESS_MADVISE, uintptr(pidfd), uintptr(unsafe.Pointer(&iov)), 1, unix.MADV_COLLAPSE, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
