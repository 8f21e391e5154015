package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"thaw/snapshot/format"
	"thaw/snapshot/hot"
	"thaw/snapshot/layer"
)

const (
	mib      = 1 << 20
	pageSize = 4096
)

// shared is a file that several images and machines use: closed when the last one
// lets go.
type shared struct {
	*os.File
	refs atomic.Int32
	free func() // instead of closing it, or nil
}

// share returns f with one user.
func share(f *os.File) *shared {
	s := &shared{File: f}
	s.refs.Store(1)
	return s
}

// use adds a user; to nil none.
func (s *shared) use() *shared {
	if s != nil {
		s.refs.Add(1)
	}
	return s
}

// release takes a user away; of nil none.
func (s *shared) release() {
	if s == nil || s.refs.Add(-1) > 0 {
		return
	}
	if s.free != nil {
		s.free()
		return
	}
	s.File.Close()
}

// shareHot returns the base and the overlays of a snapshot's memory, which goes back
// to the cache when the last of them is released.
func shareHot(m *hot.Memory) (base *shared, overlays []*shared) {
	var users atomic.Int32
	one := func(f *os.File) *shared {
		s := share(f)
		users.Add(1)
		s.free = func() {
			if users.Add(-1) == 0 {
				m.Release()
			}
		}
		return s
	}
	base = one(m.Base)
	for _, f := range m.Overlays {
		overlays = append(overlays, one(f))
	}
	return base, overlays
}

// duplicate returns another descriptor of f.
func duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("fleet: duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// sealed returns a memfd that holds b and can never be changed.
func sealed(name string, b []byte) (*os.File, error) {
	f, err := layer.NewMemfd(name, int64(len(b)))
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = layer.Seal(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("fleet: make %s: %w", name, err)
	}
	return f, nil
}

// cut makes a memfd that a VMM has written size bytes long, and seals it.
func cut(f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("fleet: cut %s: %w", f.Name(), err)
	}
	return layer.Seal(f)
}

// newDisk makes an empty layer of a disk: a sparse file without a name, gone with its
// last descriptor even if the host's power fails.
func newDisk(dir string, bytes int64) (*os.File, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("fleet: make disk layer: %w", err)
	}
	f := os.NewFile(uintptr(fd), "disk-layer")
	if err := f.Truncate(bytes); err != nil {
		f.Close()
		return nil, fmt.Errorf("fleet: size disk layer: %w", err)
	}
	return f, nil
}

// readOnly opens a file without a name once more, for reading only.
func readOnly(f *os.File) (*os.File, error) {
	r, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return nil, fmt.Errorf("fleet: open disk layer for reading: %w", err)
	}
	return r, nil
}

var zeros [pageSize]byte

// punchZeros makes holes of the pages of f that hold zeros, and returns how many there
// were and how many pages are left.
func punchZeros(f *os.File, size int64) (punched, left int, err error) {
	// Private: a shared mapping would keep the file from being sealed.
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return 0, 0, fmt.Errorf("fleet: map memory: %w", err)
	}
	defer unix.Munmap(b)
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= size {
			break
		}
		if err != nil {
			return punched, left, fmt.Errorf("fleet: find data: %w", err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return punched, left, fmt.Errorf("fleet: find a hole: %w", err)
		}
		at = min(hole, size)
		n, err := punchRange(f, b, data, at)
		if err != nil {
			return punched, left, err
		}
		punched += n
		left += int((at-data)/pageSize) - n
	}
	return punched, left, nil
}

// punchRange makes holes between two offsets.
func punchRange(f *os.File, b []byte, from, to int64) (pages int, err error) {
	zero := func(at int64) bool { return bytes.Equal(b[at:at+pageSize], zeros[:]) }
	for at := from; at < to; {
		if !zero(at) {
			at += pageSize
			continue
		}
		end := at + pageSize
		for end < to && zero(end) {
			end += pageSize
		}
		if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, end-at); err != nil {
			return pages, fmt.Errorf("fleet: make a hole: %w", err)
		}
		pages += int((end - at) / pageSize)
		at = end
	}
	return pages, nil
}

// stateSize is room for a machine's state, in bytes.
const stateSize = format.MaxFile
