package jail

import (
	"errors"
	"fmt"

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

// errNotBorn says that a process was not started by [Bear].
var errNotBorn = errors.New("not as the process should have been born")

// checkBirth looks for what Bear leaves: threads have the privileges of the one that the program began with.
func checkBirth(Options) error {
	sets, err := capabilities()
	if err != nil {
		return err
	}
	privileges, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read no_new_privs: %w", err)
	}
	bits, err := unix.PrctlRetInt(unix.PR_GET_SECUREBITS, 0, 0, 0, 0)
	if err != nil {
		return fmt.Errorf("read secure bits: %w", err)
	}
	if sets != [2]unix.CapUserData{} || privileges != 1 || bits != secureBits {
		return fmt.Errorf("capabilities %v, no_new_privs %d, secure bits %#x: %w", sets, privileges, bits, errNotBorn)
	}
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err != nil {
		return fmt.Errorf("look at root: %w", err)
	}
	if root.Type != unix.TMPFS_MAGIC || root.Files != 1 || root.Flags&unix.ST_RDONLY == 0 {
		return fmt.Errorf("root of type %#x with %d files: %w", root.Type, root.Files, errNotBorn)
	}
	return nil
}

func clearDumpable(Options) error {
	// A property of the address space: one thread speaks for all.
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
