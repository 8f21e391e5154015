package net

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// vectors are the pieces of one frame as the kernel wants them, kept from
// frame to frame: unix.Readv and Writev would allocate for more than eight.
type vectors []unix.Iovec

// set makes entry i name b. Preconditions: b is not empty.
func (v vectors) set(i int, b []byte) {
	v[i].Base = unsafe.SliceData(b)
	v[i].SetLen(len(b))
}

// read reads one frame from fd. The error is an errno as it came.
func (v vectors) read(fd int) (int, unix.Errno) { return v.call(unix.SYS_READV, fd) }

// write writes one frame to fd. The error is an errno as it came.
func (v vectors) write(fd int) (int, unix.Errno) { return v.call(unix.SYS_WRITEV, fd) }

func (v vectors) call(trap uintptr, fd int) (int, unix.Errno) {
	for {
		n, _, errno := unix.Syscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(v))), uintptr(len(v)))
		if errno != unix.EINTR {
			runtime.KeepAlive(v)
			return int(n), errno
		}
	}
}
