package pagemap

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Categories of a page, include/uapi/linux/fs.h (PAGE_IS_…).
const (
	isWritten = 1 << 1 // not protected by a userfaultfd
	isFile    = 1 << 2
	isPresent = 1 << 3
	isSwapped = 1 << 4
	isZero    = 1 << 5 // PAGE_IS_PFNZERO
)

// Flags of a scan (PM_SCAN_…).
const (
	wpMatching   = 1 << 0
	checkWPAsync = 1 << 1
)

// scanArg mirrors struct pm_scan_arg.
type scanArg struct {
	size     uint64
	flags    uint64
	start    uint64
	end      uint64
	walkEnd  uint64
	vec      uint64
	vecLen   uint64
	maxPages uint64
	inverted uint64 // category_inverted
	mask     uint64 // category_mask: all of these
	any      uint64 // category_anyof_mask: at least one of these
	returned uint64 // return_mask
}

// region mirrors struct page_region.
type region struct {
	start, end uint64
	categories uint64
}

// requestScan is PAGEMAP_SCAN, _IOWR('f', 16, struct pm_scan_arg).
const requestScan = 0xc0606610

// call makes one scan and returns the number of regions and where it stopped.
func (s *Scanner) call(arg *scanArg) (regions int, end uint64, err error) {
	arg.size = uint64(unsafe.Sizeof(*arg))
	arg.vec = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.regions))))
	arg.vecLen = uint64(len(s.regions))
	arg.returned = arg.any
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, s.file.Fd(), requestScan, uintptr(unsafe.Pointer(arg)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return 0, 0, errno
		}
		return int(n), arg.walkEnd, nil
	}
}

// address is where mem begins. It is memory that the Go runtime does not move.
func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
