// Package files makes the files that a VMM is handed: memfds that are sealed, layers of
// disks, and memory with holes for zeros; and it reads what a VMM has written.
package files

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"thaw/snapshot/layer"
)

const pageSize = 4096

// Duplicate returns another descriptor of f.
func Duplicate(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("files: duplicate descriptor: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// Sealed returns a memfd that holds b and can never be changed.
func Sealed(name string, b []byte) (*os.File, error) {
	f, err := layer.NewMemfd(name, int64(len(b)))
	if err != nil {
		return nil, err
	}
	if _, err = f.WriteAt(b, 0); err == nil {
		err = layer.Seal(f)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("files: make %s: %w", name, err)
	}
	return f, nil
}

// Cut makes a memfd that a VMM has written size bytes long, and seals it.
func Cut(f *os.File, size int64) error {
	if err := f.Truncate(size); err != nil {
		return fmt.Errorf("files: cut %s: %w", f.Name(), err)
	}
	return layer.Seal(f)
}

// ReadOnly opens a file without a name once more, for reading only.
func ReadOnly(f *os.File) (*os.File, error) {
	r, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return nil, fmt.Errorf("files: open disk layer for reading: %w", err)
	}
	return r, nil
}

var zeros [pageSize]byte

// PunchZeros makes holes of the pages of f that hold zeros, and returns how many there
// were and how many pages are left.
func PunchZeros(f *os.File, size int64) (punched, left int, err error) {
	// Private: a shared mapping would keep the file from being sealed.
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return 0, 0, fmt.Errorf("files: map memory: %w", err)
	}
	defer unix.Munmap(b)
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= size {
			break
		}
		if err != nil {
			return punched, left, fmt.Errorf("files: find data: %w", err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return punched, left, fmt.Errorf("files: find a hole: %w", err)
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
			return pages, fmt.Errorf("files: make a hole: %w", err)
		}
		pages += int((end - at) / pageSize)
		at = end
	}
	return pages, nil
}

// PrivateBytes estimates how much memory a process has made its own, without looking
// at its pages: 0 if it cannot be known.
func PrivateBytes(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if kib, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(kib), " kB"), 10, 64)
			return n << 10
		}
	}
	return 0
}
