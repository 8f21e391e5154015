package uffd

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests, include/uapi/linux/userfaultfd.h.
const (
	requestNew          = 0xaa00     // USERFAULTFD_IOC_NEW, of the device
	requestAPI          = 0xc018aa3f // UFFDIO_API
	requestRegister     = 0xc020aa00 // UFFDIO_REGISTER
	requestUnregister   = 0x8010aa01 // UFFDIO_UNREGISTER
	requestCopy         = 0xc028aa03 // UFFDIO_COPY
	requestWriteProtect = 0xc018aa06 // UFFDIO_WRITEPROTECT

	apiVersion      = 0xaa   // UFFD_API
	userModeOnly    = 1 << 0 // UFFD_USER_MODE_ONLY, of userfaultfd(2)
	registerMissing = 1 << 0 // UFFDIO_REGISTER_MODE_MISSING
	registerWP      = 1 << 1 // UFFDIO_REGISTER_MODE_WP
	copyDontWake    = 1 << 0 // UFFDIO_COPY_MODE_DONTWAKE
	writeProtect    = 1 << 0 // UFFDIO_WRITEPROTECT_MODE_WP
)

// api mirrors struct uffdio_api.
type api struct {
	version, features uint64
	_                 uint64 // ioctls
}

// register mirrors struct uffdio_register.
type register struct {
	r    Range
	mode uint64
	_    uint64 // ioctls
}

// protection mirrors struct uffdio_writeprotect.
type protection struct {
	r    Range
	mode uint64
}

// copying mirrors struct uffdio_copy.
type copying struct {
	to, from, length uint64
	mode             uint64
	_                int64 // how much was copied, or the error
}

// Of returns where mem is. It must not be memory of Go's own.
func Of(mem []byte) Range {
	return Range{Start: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))), Length: uint64(len(mem))}
}

func ioctl[T any](fd int, request uintptr, arg *T) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(arg)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		return nil
	}
}

func newDescriptor(flags uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, flags, 0, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// plainIoctl is one whose argument and answer are numbers.
func plainIoctl(fd, request, arg uintptr) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, arg)
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}
