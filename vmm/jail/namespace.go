package jail

import (
	"errors"
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrAway is wrapped when a thread could not come home from another namespace.
var ErrAway = errors.New("thread is in another namespace")

// openNamespace opens that of the calling thread; kind is its name in /proc/PID/ns.
func openNamespace(kind string) (int, error) {
	fd, err := unix.Open("/proc/thread-self/ns/"+kind, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("jail: open %s namespace: %w", kind, err)
	}
	return fd, nil
}

// away calls do on a thread that leave takes to another namespace than home, of the kind that the flag of clone(2) says, and
// comes home. If it cannot, the goroutine stays locked to its thread, and the error wraps ErrAway: there is no way back to
// where the caller's other code belongs.
func away(home, kind int, leave, do func() error) error {
	runtime.LockOSThread()
	if err := leave(); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("jail: change namespace: %w", err)
	}
	err := do()
	if back := unix.Setns(home, kind); back != nil {
		return fmt.Errorf("jail: change namespace back: %w: %w", ErrAway, back)
	}
	runtime.UnlockOSThread()
	return err
}
