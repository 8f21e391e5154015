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
// at the latest when the process ends, however it ends.
func lockState(stateDir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(stateDir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lab: open lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("%w: %s", ErrRunning, stateDir)
	}
	return nil, fmt.Errorf("lab: lock state folder: %w", err)
}

// lockHeld says whether a supervisor lives.
func lockHeld(stateDir string) (bool, error) {
	if _, err := os.Stat(filepath.Join(stateDir, lockFile)); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	f, err := lockState(stateDir)
	if errors.Is(err, ErrRunning) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, f.Close()
}
