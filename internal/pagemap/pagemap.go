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
// not among them, and pages that are swapped out are.
func (s *Scanner) Private(mem []byte, list []Range) ([]Range, error) {
	return s.scan(mem, list, scanArg{
		// Present or swapped, and neither of a file nor the page of zeros.
		inverted: isFile | isZero, mask: isFile | isZero, any: isPresent | isSwapped,
	})
}

// Written appends to list those of the private pages that are not write-protected:
// written since Protect, or made since. Preconditions: mem is registered with a
// userfaultfd; without one nothing is protected.
func (s *Scanner) Written(mem []byte, list []Range) ([]Range, error) {
	return s.scan(mem, list, written)
}

// Protect write-protects the pages of mem that Written would tell of, and calls f with
// them, in no order and some twice. They are told of again once they have been
// written. A page is told of and protected in one step: whoever reads it after Protect
// misses nothing that was written before, and the next call tells of what is written
// later. mem must be registered with a userfaultfd that resolves faults
// asynchronously; other memory gives an error that wraps ErrNotSupported.
//
// Whoever has shadows of the page tables, as KVM does, is told to drop those of the
// whole of mem, protected or not: give it the parts that matter.
func (s *Scanner) Protect(mem []byte, f func(Range)) error {
	arg := written
	arg.flags = wpMatching | checkWPAsync
	return s.each(mem, arg, f)
}

// written are private pages that are not protected.
var written = scanArg{inverted: isFile | isZero, mask: isWritten | isFile | isZero, any: isPresent | isSwapped}

// scan runs over mem and joins neighbours.
func (s *Scanner) scan(mem []byte, list []Range, arg scanArg) ([]Range, error) {
	told := uint32(0)
	err := s.each(mem, arg, func(r Range) {
		end := r.First + r.Count
		// Where its answer is full, the kernel (seen on 6.18) goes back to the
		// start of a page table and tells of its pages once more.
		if first := max(r.First, told); first < end {
			list = Append(list, Range{First: first, Count: end - first})
			told = end
		}
	})
	return list, err
}

// each runs over mem, call by call.
func (s *Scanner) each(mem []byte, arg scanArg, f func(Range)) error {
	start := address(mem)
	arg.start, arg.end = start, start+uint64(len(mem))
	for arg.start < arg.end {
		n, end, err := s.call(&arg)
		if err != nil {
			// EPERM: not asynchronous, where that was asked for.
			if errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM) {
				err = fmt.Errorf("%w: %w", err, ErrNotSupported)
			}
			return fmt.Errorf("pagemap: scan %d bytes: %w", len(mem), err)
		}
		for _, r := range s.regions[:n] {
			f(Range{First: uint32((r.start - start) / PageSize), Count: uint32((r.end - r.start) / PageSize)})
		}
		if end <= arg.start {
			return fmt.Errorf("pagemap: scan stands still at byte %d", arg.start-start)
		}
		arg.start = end
	}
	return nil
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
