// Package pagemap asks the kernel which pages of a mapping are a process's own
// (Linux 6.7, Documentation/admin-guide/mm/pagemap.rst, "Pagemap Scan IOCTL").
package pagemap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// PageSize is the unit of everything here, in bytes.
const PageSize = 4096

// ErrNotSupported is wrapped where the kernel has no PAGEMAP_SCAN.
var ErrNotSupported = errors.New("kernel has no pagemap scan")

// Range is a number of pages in a row, counted from the start of the mapping
// that was scanned.
type Range struct {
	First, Count uint32
}

// Scanner scans one process's mappings. It is not for use by several goroutines.
type Scanner struct {
	file    *os.File
	regions []region // room for one call's answer
}

// answers is how many ranges one call can return.
const answers = 4096

// New returns a scanner of the process whose /proc/PID/pagemap file is. The file
// stays the caller's.
func New(file *os.File) *Scanner {
	return &Scanner{file: file, regions: make([]region, answers)}
}

// Private appends to list the pages of mem that are private: written since a
// private mapping was made, or of anonymous memory. Pages that were only read are
// not among them, and pages that are swapped out are. It returns how many pages
// there are in the whole list.
func (s *Scanner) Private(mem []byte, list []Range) ([]Range, error) {
	return s.scan(mem, list, scanArg{
		// Present or swapped, and neither of a file nor the page of zeros.
		inverted: isFile | isZero, mask: isFile | isZero, any: isPresent | isSwapped,
	})
}

// scan runs over mem, call by call, and joins neighbours.
func (s *Scanner) scan(mem []byte, list []Range, arg scanArg) ([]Range, error) {
	start := address(mem)
	arg.start, arg.end = start, start+uint64(len(mem))
	told := start
	for arg.start < arg.end {
		n, end, err := s.call(&arg)
		if err != nil {
			if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) {
				err = fmt.Errorf("%w: %w", err, ErrNotSupported)
			}
			return list, fmt.Errorf("pagemap: scan %d bytes: %w", len(mem), err)
		}
		for _, r := range s.regions[:n] {
			// Where its answer is full, the kernel (seen on 6.18) goes back to
			// the start of a page table and tells of its pages once more.
			if r.start = max(r.start, told); r.start < r.end {
				list = Append(list, Range{First: uint32((r.start - start) / PageSize), Count: uint32((r.end - r.start) / PageSize)})
				told = r.end
			}
		}
		if end <= arg.start {
			return list, fmt.Errorf("pagemap: scan stands still at byte %d", arg.start-start)
		}
		arg.start = end
	}
	return list, nil
}

// Append adds r, which lies behind all of list, and joins it with the last range
// where they touch.
func Append(list []Range, r Range) []Range {
	if n := len(list); n > 0 && list[n-1].First+list[n-1].Count == r.First {
		list[n-1].Count += r.Count
		return list
	}
	return append(list, r)
}

// Pages is the number of pages in list.
func Pages(list []Range) int {
	n := 0
	for _, r := range list {
		n += int(r.Count)
	}
	return n
}
