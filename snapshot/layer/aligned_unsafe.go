package layer

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapAligned maps n bytes of f, MAP_SHARED or MAP_PRIVATE, at an address that is a multiple of
// hugeSize, and returns them with what unmaps them. unix.Mmap lets the kernel
// choose, which aligns to pages only.
func mapAligned(f *os.File, n, sharing int) ([]byte, func(), error) {
	reserved, err := unix.MmapPtr(-1, 0, nil, uintptr(n+hugeSize), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, nil, fmt.Errorf("layer: reserve %d bytes: %w", n+hugeSize, err)
	}
	unmap := func() { unix.MunmapPtr(reserved, uintptr(n+hugeSize)) }
	skip := -uintptr(reserved) % hugeSize
	p, err := unix.MmapPtr(int(f.Fd()), 0, unsafe.Add(reserved, skip), uintptr(n), unix.PROT_READ|unix.PROT_WRITE, sharing|unix.MAP_FIXED)
	if err != nil {
		unmap()
		return nil, nil, fmt.Errorf("layer: map %d bytes: %w", n, err)
	}
	return unsafe.Slice((*byte)(p), n), unmap, nil
}
