package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another supervisor owns the state folder.
var ErrRunning = errors.New("lab: a lab runs in this state folder already")

const lockFile = "lock"

// lockState takes the state folder for this process until the file is closed,
// at the latest when the process ends, however it ends. It is a lock of the open
// file and not of flock's kind, since one of those can only be probed by taking
// it, and a probe would be in a starting supervisor's way.
func lockState(stateDir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lab: open lock: %w", err)
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return nil, fmt.Errorf("%w: %s", ErrRunning, stateDir)
	}
	return nil, fmt.Errorf("lab: lock state folder: %w", err)
}

// lockHeld says whether a supervisor lives.
func lockHeld(stateDir string) (bool, error) {
	f, err := os.Open(filepath.Join(stateDir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lab: open lock: %w", err)
	}
	defer f.Close()
	// F_OFD_GETLK answers with what stands against this lock, or F_UNLCK.
	probe := unix.Flock_t{Type: unix.F_RDLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &probe); err != nil {
		return false, fmt.Errorf("lab: probe lock: %w", err)
	}
	return probe.Type != unix.F_UNLCK, nil
}
