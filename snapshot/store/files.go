package store

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"thaw/snapshot/layer"
)

// full makes an error of the file system's that means "no room" an ErrNoSpace.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

// writeFile makes a file, which must not exist, with b in it, on the disk.
func writeFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("store: make file: %w", full(err))
	}
	_, err = f.Write(b)
	return finish(f, err)
}

// finish syncs and closes a file that was written with err.
func finish(f *os.File, err error) error {
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("store: write %s: %w", filepath.Base(f.Name()), full(err))
	}
	return nil
}

// syncDir makes the names in a folder durable.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("store: open folder: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("store: sync folder: %w", full(err))
	}
	return nil
}

// sha is the SHA-256 of b in hex.
func sha(b []byte) string { return layer.Digest(sha256.Sum256(b)).String() }

// readFile reads a whole file that must have size bytes and a digest. Errors wrap
// ErrDamaged, or are those of the file.
func readFile(path string, want File) ([]byte, error) {
	b, err := readBounded(path, want.Size)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != want.Size || sha(b) != want.Digest {
		return nil, fmt.Errorf("store: %s of %d bytes: %w", want.Name, len(b), ErrDamaged)
	}
	return b, nil
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("store: read %s: %w", filepath.Base(path), err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("store: %s is longer than %d bytes: %w", filepath.Base(path), limit, ErrDamaged)
	}
	return b, nil
}

// openRegular opens a regular file for reading; a link, a device or a missing file
// in a snapshot's folder is damage.
func openRegular(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("store: open %s: %w: %w", filepath.Base(path), err, ErrDamaged)
	}
	if err != nil {
		return nil, fmt.Errorf("store: open file: %w", err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = ErrDamaged
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("store: open %s: %w", filepath.Base(path), err)
	}
	return f, nil
}

// diskUse is how many bytes the files of a folder take.
func diskUse(dir string) int64 {
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

// free is how many bytes the store's file system has left.
func (s *Store) free() (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.root, &st); err != nil {
		return 0, fmt.Errorf("store: look at free space: %w", err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// room says whether the store may grow by n bytes.
func (s *Store) room(n int64) error {
	free, err := s.free()
	if err != nil {
		return err
	}
	if free-n < s.opts.MinFree {
		return fmt.Errorf("store: %d bytes wanted, %d free, %d reserved: %w", n, free, s.opts.MinFree, ErrNoSpace)
	}
	if used := s.Used(); s.opts.MaxBytes > 0 && used+n > s.opts.MaxBytes {
		return fmt.Errorf("store: %d bytes wanted, %d used of %d: %w", n, used, s.opts.MaxBytes, ErrNoSpace)
	}
	return nil
}

// Used is how many bytes of disk the snapshots take.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var n int64
	for _, e := range s.entries {
		n += e.bytes
	}
	return n
}

// fileUse is how many bytes a file takes on disk.
func fileUse(f *os.File) int64 {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return st.Blocks * 512
}
