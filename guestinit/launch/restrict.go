package launch

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
)

// securebits (include/uapi/linux/securebits.h): uid 0 gives no capability,
// ambient capabilities cannot be raised, and neither can be undone. The fixup
// that clears capabilities at setuid stays on: the jobs rely on it.
const (
	secNoRoot              = 1 << 0
	secNoRootLocked        = 1 << 1
	secNoAmbientRaise      = 1 << 6
	secNoAmbientRaiseLock  = 1 << 7
	launcherSecurebits     = secNoRoot | secNoRootLocked | secNoAmbientRaise | secNoAmbientRaiseLock
	linuxCapabilityVersion = unix.LINUX_CAPABILITY_VERSION_3
)

// jobTimerSlack is the kernel's default in nanoseconds: a job's sleeps are as exact as
// elsewhere, whatever the agent's threads are content with.
const jobTimerSlack = 50_000

// restrict takes from the calling thread what no job may have. It keeps its
// own effective capabilities, which it needs to set ids and limits; a child
// loses them at setuid and, with an empty bounding set, never gets any again.
//
// Preconditions: the goroutine is locked to its thread.
func restrict() error {
	if err := dropBounding(); err != nil {
		return err
	}
	if err := setOwn(); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("launch: clear ambient capabilities: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_SECUREBITS, launcherSecurebits, 0, 0, 0); err != nil {
		return fmt.Errorf("launch: set securebits: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, jobTimerSlack, 0, 0, 0); err != nil {
		return fmt.Errorf("launch: set timer slack: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("launch: set no_new_privs: %w", err)
	}
	// On this thread alone: the agent's others are not jobs.
	if err := seccomp.Install(&policy, seccomp.ThisThread); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	return nil
}

// dropBounding empties the capability bounding set. The kernel may know more
// capabilities than this build: it goes on until the kernel says EINVAL, the
// answer to a capability that it does not know.
func dropBounding() error {
	for c := uintptr(0); c < 64; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("launch: drop capability %d: %w", c, err)
		}
	}
	return nil
}

// setOwn puts all permitted capabilities into effect on this thread, whatever
// the rest of the agent does without, and makes none inheritable.
func setOwn() error {
	hdr := unix.CapUserHeader{Version: linuxCapabilityVersion}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("launch: get capabilities: %w", err)
	}
	for i := range data {
		data[i].Effective, data[i].Inheritable = data[i].Permitted, 0
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("launch: set capabilities: %w", err)
	}
	return nil
}
