package guestmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// address is where b begins. Preconditions: the Go runtime does not move b.
func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// mapOver replaces what is mapped at b by a private mapping of fd.
func mapOver(b []byte, fd int, offset uint64) error {
	_, err := unix.MmapPtr(fd, int64(offset), unsafe.Pointer(unsafe.SliceData(b)), uintptr(len(b)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}
