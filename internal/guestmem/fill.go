package guestmem

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// fillChunk is how much Fill copies at once, in bytes: it stays in the cache.
const fillChunk = 256 << 10

// Fill copies n bytes of r, from offset on, to gpa. It writes to the memory's
// file rather than through the mapping: pages that are written whole need neither
// be zeroed nor faulted in, which halves the time that loading a kernel takes.
// Preconditions: the file given to Map is still open.
//
// An r that ends early gives io.ErrUnexpectedEOF; a range outside of RAM an error
// that wraps ErrOutOfRange.
func (m *Memory) Fill(gpa uint64, r io.ReaderAt, offset int64, n uint64) error {
	at, err := m.offset(gpa, n)
	if err != nil {
		return err
	}
	m.MarkDirty(gpa, n)
	buf := make([]byte, min(n, fillChunk))
	for n > 0 {
		b := buf[:min(n, fillChunk)]
		if k, err := r.ReadAt(b, offset); k < len(b) {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		// The VMM's jail allows the vectored call for its disks.
		if k, err := unix.Pwritev2(int(m.file.Fd()), [][]byte{b}, int64(at), 0); err != nil || k != len(b) {
			return fmt.Errorf("guestmem: write %d bytes to the memory's file: %d written: %w", len(b), k, err)
		}
		offset += int64(len(b))
		at += uint64(len(b))
		n -= uint64(len(b))
	}
	return nil
}
