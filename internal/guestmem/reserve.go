package guestmem

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// HugePage is the size of a huge page on x86, in bytes.
const HugePage = 2 << 20

// Reserve returns memory without a file: size bytes of address space, aligned so
// that what the guest touches first comes in huge pages. Files can be laid over
// it (MapFile) while the guest does not run.
func Reserve(size uint64) (*Memory, error) {
	if size == 0 || size%PageSize != 0 {
		return nil, fmt.Errorf("guestmem: reserve %d bytes: size is not a multiple of %d", size, PageSize)
	}
	raw, err := unix.Mmap(-1, 0, int(size)+HugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("guestmem: reserve %d bytes: %w", size, err)
	}
	skip := -address(raw) & (HugePage - 1)
	m := &Memory{host: raw[skip : skip+size : skip+size], raw: raw, regions: Layout(size)}
	if err := unix.Madvise(m.host, unix.MADV_HUGEPAGE); err != nil && err != unix.EINVAL {
		// EINVAL: a kernel without huge pages.
		m.Unmap()
		return nil, fmt.Errorf("guestmem: ask for huge pages: %w", err)
	}
	return m, nil
}

// MapFile lays n bytes of file, from at on, over reserved memory from offset on: the
// guest sees the file's bytes, and what it writes stays its own. All must be multiples
// of PageSize. Preconditions: the guest does not run; the file does not end before.
func (m *Memory) MapFile(file *os.File, at, offset, n uint64) error {
	if at%PageSize != 0 || offset%PageSize != 0 || n%PageSize != 0 || n == 0 || offset+n < offset || offset+n > m.Size() {
		return fmt.Errorf("guestmem: map %d bytes of a file at offset %#x: %w", n, offset, ErrOutOfRange)
	}
	if err := mapOver(m.host[offset:offset+n], int(file.Fd()), at); err != nil {
		return fmt.Errorf("guestmem: map %d bytes of a file at offset %#x: %w", n, offset, err)
	}
	m.laid = append(m.laid, laid{offset, n})
	return nil
}

// laid is where a file lies over reserved memory.
type laid struct{ offset, n uint64 }

// laidOver says whether a file lies over any of the n bytes at offset.
func (m *Memory) laidOver(offset, n uint64) bool {
	return slices.ContainsFunc(m.laid, func(l laid) bool { return offset < l.offset+l.n && l.offset < offset+n })
}
