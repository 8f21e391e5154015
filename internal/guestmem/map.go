package guestmem

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Map maps size bytes of file, shared, as a guest's memory. The file must be
// at least that long, size a multiple of PageSize; it may be closed afterwards,
// but for Fill.
func Map(file *os.File, size uint64) (*Memory, error) {
	if size == 0 || size%PageSize != 0 {
		return nil, fmt.Errorf("guestmem: map %d bytes: size is not a multiple of %d", size, PageSize)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("guestmem: stat backing file: %w", err)
	}
	if uint64(info.Size()) < size {
		// A mapping beyond the end of its file would raise SIGBUS later.
		return nil, fmt.Errorf("guestmem: map %d bytes: backing file has %d", size, info.Size())
	}
	host, err := unix.Mmap(int(file.Fd()), 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("guestmem: map %d bytes: %w", size, err)
	}
	return &Memory{host: host, raw: host, file: file, regions: Layout(size)}, nil
}

// New returns a memory of its own, backed by a new memfd: for tests and tools.
func New(size uint64) (*Memory, error) {
	fd, err := unix.MemfdCreate("guestmem", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("guestmem: make memfd: %w", err)
	}
	file := os.NewFile(uintptr(fd), "guestmem")
	if err := file.Truncate(int64(size)); err != nil {
		file.Close()
		return nil, fmt.Errorf("guestmem: size memfd: %w", err)
	}
	m, err := Map(file, size)
	if err != nil {
		file.Close()
		return nil, err
	}
	m.owned = true
	return m, nil
}

// Unmap ends the mapping. Preconditions: nothing touches the memory any more,
// and no slice of it is used again.
func (m *Memory) Unmap() error {
	if m.host == nil {
		return nil
	}
	raw := m.raw
	m.host, m.raw, m.regions = nil, nil, nil
	if m.owned {
		m.file.Close()
	}
	if err := unix.Munmap(raw); err != nil {
		return fmt.Errorf("guestmem: unmap: %w", err)
	}
	return nil
}
