package guestmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Reclaim gives the n bytes at gpa back to the host: the guest finds zeroes
// there afterwards or, in reserved memory, what a file mapped there has. gpa and n must be multiples of PageSize. The balloon calls
// it with the guest's own numbers: a range outside of RAM gives an error that
// wraps ErrOutOfRange.
func (m *Memory) Reclaim(gpa, n uint64) error {
	if gpa%PageSize != 0 || n%PageSize != 0 {
		return fmt.Errorf("guestmem: reclaim %d bytes at %#x: not whole pages: %w", n, gpa, ErrOutOfRange)
	}
	b, err := m.Slice(gpa, n)
	if err != nil || n == 0 {
		return err
	}
	if m.staged.Load() {
		if err := unix.Madvise(b, unix.MADV_POPULATE_WRITE); err != nil {
			return fmt.Errorf("guestmem: let go of %d bytes at %#x: %w", n, gpa, err)
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
		return fmt.Errorf("guestmem: reclaim %d bytes at %#x: %w", n, gpa, err)
	}
	m.MarkDirty(gpa, n)
	return nil
}

// Staged says whether another process copies pages before the first write to them.
// Reclaim then has it copy those that it drops, as if it wrote to them.
func (m *Memory) Staged(on bool) { m.staged.Store(on) }
