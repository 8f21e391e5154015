// Package durable writes and reads the files of a store so that a crash leaves what was
// finished, and a hostile file system entry is an error: files are made anew and synced,
// folders synced, and only regular files are opened.
package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"thaw/snapshot/layer"
)

var (
	// ErrNoSpace says that the file system is full, or a share of it is.
	ErrNoSpace = errors.New("no space for the snapshot")
	// ErrLocked says that another process holds a lock.
	ErrLocked = errors.New("snapshot store is open in another process")
)

// Full makes an error of the file system's that means "no room" an ErrNoSpace.
func Full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// WriteFile makes a file, which must not exist, with b in it, on the disk.
func WriteFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("durable: make file: %w", Full(err))
	}
	_, err = f.Write(b)
	return Finish(f, err)
}

// Finish syncs and closes a file that was written with err.
func Finish(f *os.File, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("durable: write %s: %w", filepath.Base(f.Name()), Full(err))
	}
	return nil
}

// SyncDir makes the names in a folder durable.
func SyncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("durable: open folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("durable: sync folder: %w", Full(err))
	}
	return nil
}

// ReadBounded reads a regular file of at most limit bytes.
func ReadBounded(path string, limit int64) ([]byte, error) {
	f, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("durable: read %s: %w", filepath.Base(path), err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("durable: %s is longer than %d bytes: %w", filepath.Base(path), limit, layer.ErrDamaged)
	}
	return b, nil
}

// OpenRegular opens a regular file for reading; a link, a device or a missing file
// in a snapshot's folder is damage.
func OpenRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("durable: open %s: %w: %w", filepath.Base(path), err, layer.ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("durable: open file: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = layer.ErrDamaged
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("durable: open %s: %w", filepath.Base(path), err)
	}
	return f, nil
}

// FolderUse is how many bytes the files of a folder take.
func FolderUse(dir string) int64 {
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	var n int64
	for _, e := range list {
		var st unix.Stat_t
		if unix.Lstat(filepath.Join(dir, e.Name()), &st) == nil {
			n += st.Blocks * 512
		}
	}
	return n
}

// FileUse is how many bytes a file takes on disk.
func FileUse(f *os.File) int64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}

// Free is how many bytes the file system of path has left for this process.
func Free(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("durable: look at free space: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Lock opens the file at path and locks it for this process, until it is closed. The
// error wraps ErrLocked if another process has it.
func Lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("durable: open lock: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("durable: lock %s: %w", path, err)
	}
	return f, nil
}

// Nameless makes an empty file in a folder that is gone when it is closed.
func Nameless(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, "nameless-")
	if err != nil {
		return nil, fmt.Errorf("durable: make file: %w", Full(err))
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, fmt.Errorf("durable: remove name: %w", err)
	}
	return f, nil
}

// ReadOnly opens a file once more, for reading only, whether it has a name or not.
func ReadOnly(f *os.File) (*os.File, error) {
	r, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return nil, fmt.Errorf("durable: open %s for reading: %w", filepath.Base(f.Name()), err)
	}
	return r, nil
}
