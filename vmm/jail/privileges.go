package jail

import (
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// secureBits, all locked (capabilities(7), "The securebits flags"): user id 0 is no one special at exec or
// setuid, capabilities are not kept over setuid, and none can be made ambient.
const secureBits = secbitNoRoot | secbitNoRoot<<1 |
	secbitNoSetuidFixup | secbitNoSetuidFixup<<1 |
	secbitKeepCaps<<1 |
	secbitNoAmbientRaise | secbitNoAmbientRaise<<1

const (
	secbitNoRoot         = 1 << 0
	secbitNoSetuidFixup  = 1 << 2
	secbitKeepCaps       = 1 << 4
	secbitNoAmbientRaise = 1 << 6
)

// allThreads makes a system call with plain numbers in every thread of the process. It fails when the binary has
// cgo in it (ENOTSUP), and the Go runtime ends the process when threads disagree about the result.
func allThreads(trap, a1, a2, a3, a4, a5 uintptr) error {
	if _, _, errno := syscall.AllThreadsSyscall6(trap, a1, a2, a3, a4, a5, 0); errno != 0 {
		return errno
	}
	return nil
}

func dropBounding(Options) error {
	for capability := uintptr(0); ; capability++ {
		err := allThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) && capability > unix.CAP_LAST_CAP/2 {
			return nil // one past the last that this kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
	}
}

func lockSecureBits(Options) error {
	return allThreads(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, secureBits, 0, 0, 0)
}

func dropCapabilities(Options) error {
	err := allThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("clear ambient set: %w", err)
	}
	return capsetEmpty()
}

func clearDumpable(Options) error {
	// A property of the address space: one thread speaks for all.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

func noNewPrivs(Options) error {
	return allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}
