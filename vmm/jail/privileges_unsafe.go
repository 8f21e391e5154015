package jail

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// capsetEmpty empties the permitted, effective and inheritable sets of every thread.
func capsetEmpty() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3} // Pid 0: the calling thread
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET,
		uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none[0])), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// nameThreads gives every thread that exists the name of the jail; later ones inherit it.
func nameThreads(o Options) error {
	name, err := unix.BytePtrFromString(o.Hostname)
	if err != nil {
		return err
	}
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(name)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}
