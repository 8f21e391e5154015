package layer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// ErrWritable says that a memfd cannot be sealed because a process has it
// mapped for writing.
var ErrWritable = errors.New("memory is still mapped for writing")

// seals of a layer in use: nobody, not even a VMM that was taken over, can
// change what later restores are made of.
const seals = unix.F_SEAL_WRITE | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// NewMemfd returns an empty memfd of size bytes that can be sealed. name is seen
// in /proc only.
func NewMemfd(name string, size int64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("layer: make memfd: %w", err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Truncate(size); err != nil {
		f.Close()
		return nil, fmt.Errorf("layer: size memfd: %w", err)
	}
	return f, nil
}

// The kernel seals only when nobody holds a page, and waits 150 ms for that itself. On
// a busy host a page that was just written or collapsed may be held for longer, by a
// CPU's list of pages on their way to the LRU.
const (
	sealTries = 8
	sealPause = 20 * time.Millisecond
)

// Seal makes a memfd unchangeable for every process that has it. The error wraps
// ErrWritable if one has it mapped for writing.
func Seal(f *os.File) error {
	var err error
	for range sealTries {
		if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(sealPause)
	}
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("layer: seal memfd: %w", ErrWritable)
	}
	if err != nil {
		return fmt.Errorf("layer: seal memfd: %w", err)
	}
	return nil
}

// Sealed says whether f is a memfd with every seal that Seal sets.
func Sealed(f *os.File) bool {
	got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && got&seals == seals
}

// Load copies a stored layer into a new memfd, verifying each chunk before it is
// written, and seals it. Zero pages stay holes. With huge, ranges of 2 MiB that
// are mostly data become huge pages where the kernel agrees. Errors wrap
// ErrDamaged, or are those of the file.
func Load(ctx context.Context, stored *os.File, s *Sum, name string, huge bool) (*os.File, error) {
	m, err := NewMemfd(name, s.Size)
	if err != nil {
		return nil, err
	}
	err = check(ctx, stored, s, func(i int, b []byte) error {
		return writeData(m, b, int64(i)*ChunkSize)
	})
	if err == nil && huge {
		_, err = Collapse(m, s.Size)
	}
	if err == nil {
		err = Seal(m)
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}
