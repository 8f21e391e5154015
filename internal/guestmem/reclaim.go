package guestmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Reclaim gives the n bytes at gpa back to the host. The guest finds zeros there
// afterwards, and zeros says so, or, in reserved memory with a file mapped in the range,
// what the file has. gpa and n must be multiples of PageSize. The balloon calls it with
// the guest's own numbers: a range outside of RAM gives an error that wraps
// ErrOutOfRange.
func (m *Memory) Reclaim(gpa, n uint64) (zeros bool, err error) {
	if gpa%PageSize != 0 || n%PageSize != 0 {
		return false, fmt.Errorf("guestmem: reclaim %d bytes at %#x: not whole pages: %w", n, gpa, ErrOutOfRange)
	}
	at, err := m.offset(gpa, n)
	if err != nil || n == 0 {
		return false, err
	}
	b := m.host[at : at+n]
	if m.staged.Load() {
		if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
			return false, fmt.Errorf("guestmem: let go of %d bytes at %#x: %w", n, gpa, err)
		}
	}
	// MADV_REMOVE punches a hole in the memfd behind a shared mapping;
	// MADV_DONTNEED alone would only unmap, and keep the pages in the file. Of
	// reserved memory it drops what was written.
	advice := unix.MADV_REMOVE
	if m.file == nil {
		advice = unix.MADV_DONTNEED
	}
	if err := unix.Madvise(b, advice); err != nil {
		return false, fmt.Errorf("guestmem: reclaim %d bytes at %#x: %w", n, gpa, err)
	}
	m.MarkDirty(gpa, n)
	return !m.laidOver(at, n), nil
}

// Staged says whether another process copies pages before the first write to them.
// Reclaim then has it copy those that it drops, as if it wrote to them.
func (m *Memory) Staged(on bool) { m.staged.Store(on) }
