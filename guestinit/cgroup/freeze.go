package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrFreezeTimeout says that the groups' processes did not stand still in
// time.
var ErrFreezeTimeout = errors.New("cgroup: processes did not freeze in time")

// Freeze stops every process of every group by one write on their parent, and
// waits until the kernel says that all stand still, at most until the deadline.
// If they do not it lets them go on. A frozen process can still be killed.
//
// The file's change is not waited for by poll: the kernel holds notices of it
// back to one in 10 ms (CGROUP_FILE_NOTIFY_MIN_INTV), and a freeze takes less.
func (m *Manager) Freeze(deadline time.Time) error {
	if err := pwrite(m.freeze, "1"); err != nil {
		return fmt.Errorf("cgroup: freeze: %w", err)
	}
	for wait := 20 * time.Microsecond; ; wait = min(2*wait, time.Millisecond) {
		frozen, err := m.frozen()
		if err == nil && frozen {
			return nil
		}
		if err == nil && time.Now().After(deadline) {
			err = ErrFreezeTimeout
		}
		if err != nil {
			return errors.Join(err, m.Thaw())
		}
		time.Sleep(wait)
	}
}

// Thaw lets the processes go on.
func (m *Manager) Thaw() error {
	if err := pwrite(m.freeze, "0"); err != nil {
		return fmt.Errorf("cgroup: thaw: %w", err)
	}
	return nil
}

func pwrite(f *os.File, value string) error {
	_, err := unix.Pwrite(int(f.Fd()), []byte(value), 0)
	return err
}

func (m *Manager) frozen() (bool, error) {
	var buf [256]byte
	n, err := unix.Pread(int(m.events.Fd()), buf[:], 0)
	if err != nil {
		return false, fmt.Errorf("cgroup: read events: %w", err)
	}
	return strings.Contains(string(buf[:n]), "frozen 1\n"), nil
}
