package jail

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capabilities reads the sets of the calling thread.
func capabilities() (sets [2]unix.CapUserData, err error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // Pid 0: the calling thread
	if _, _, errno := syscall.RawSyscall(unix.SYS_CAPGET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&sets[0])), 0); errno != 0 {
		return sets, fmt.Errorf("read capabilities: %w", errno)
	}
	return sets, nil
}

// nameThreads gives every thread that exists the name of the jail; later ones inherit it.
func nameThreads(o Options) error {
	name, err := unix.BytePtrFromString(o.Name)
	if err != nil {
		return err
	}
	// A new thread has the name of the one that makes it, and from Linux 6.14 on the exec by descriptor gives the first one
	// the file's.
	var now [16]byte
	if err := unix.Prctl(unix.PR_GET_NAME, uintptr(unsafe.Pointer(&now)), 0, 0, 0); err != nil {
		return err
	}
	if unix.ByteSliceToString(now[:]) == o.Name {
		return nil
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
