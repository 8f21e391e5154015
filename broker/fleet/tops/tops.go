// Package tops has the files that machines write their disks into: sparse, without a name,
// gone with their last descriptor. Those of machines that have ended are emptied and used
// again, because a new one takes an inode, and ext4 without a journal looks at each inode
// that was deleted within the last minute before it gives one out.
//
// A machine cannot tell an old file from a new one: it is empty, and of whoever had it
// before nobody has it open, nor left anything set on the descriptor. The kernel says so:
// the file is opened anew, and must then be good for a write lease (fcntl(2)), which it is
// only if it is open nowhere else. Where there are no leases, each machine has a new file.
package tops

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"thaw/broker/boot"
)

// maxIdle is how many files wait at most: as many as machines that end at a time and are
// followed by others. Each is a descriptor and an inode.
const maxIdle = 128

// Tops keeps the files that wait. It is safe for several goroutines.
type Tops struct {
	dir string

	mu     sync.Mutex
	idle   []*os.File // protected by mu; empty files
	closed bool       // protected by mu
}

// New makes files on the file system of a directory.
func New(dir string) *Tops { return &Tops{dir: dir} }

// Take returns an empty file of that many bytes, which is the caller's.
func (t *Tops) Take(bytes int64) (*os.File, error) {
	if f := t.pop(); f != nil {
		if err := f.Truncate(bytes); err == nil {
			return f, nil
		}
		f.Close() // a new one has the same trouble, or none
	}
	return boot.ScratchDisk(t.dir, bytes)
}

// pop returns the file that was given last, or nil.
func (t *Tops) pop() *os.File {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.idle)
	if n == 0 {
		return nil
	}
	f := t.idle[n-1]
	t.idle = t.idle[:n-1]
	return f
}

// Give takes a file back, whose content is gone then. If it cannot be used again, it is
// closed. Preconditions: the machine's process has ended, and no snapshot has the file.
func (t *Tops) Give(f *os.File) error {
	if t.full() {
		return f.Close()
	}
	again, err := renew(f)
	if cerr := f.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("tops: close disk layer: %w", cerr)
	}
	if again == nil {
		return err
	}
	if err != nil || !alone(again) || !t.push(again) {
		return errors.Join(err, again.Close())
	}
	return nil
}

// renew empties a file and opens it anew: flags of the old descriptor, which the VMM had
// too, could make a difference (O_APPEND).
func renew(f *os.File) (*os.File, error) {
	// Before it is closed: ext4 begins to write out a file that is closed after it was
	// emptied and written again.
	if err := f.Truncate(0); err != nil {
		return nil, fmt.Errorf("tops: empty disk layer: %w", err)
	}
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("tops: open disk layer anew: %w", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// alone says whether a file is open nowhere else.
func alone(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return false
	}
	_, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return err == nil
}

func (t *Tops) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed || len(t.idle) >= maxIdle
}

// push keeps a file, if there is room.
func (t *Tops) push(f *os.File) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed || len(t.idle) >= maxIdle {
		return false
	}
	t.idle = append(t.idle, f)
	return true
}

// Close closes the files that wait, and all that are given back later.
func (t *Tops) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, f := range t.idle {
		errs = append(errs, f.Close())
	}
	t.idle, t.closed = nil, true
	return errors.Join(errs...)
}
