package boot

import (
	"fmt"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dropResource takes CAP_SYS_RESOURCE from what is in effect on every thread.
// With it, what the agent writes for the host would go beyond a quota, and
// into blocks that the file system keeps for root. The launcher, which needs
// it to set limits of jobs, takes it back for its own thread.
//
// Capabilities belong to threads; AllThreadsSyscall stops them all, so it is
// called while there are few.
func dropResource() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return fmt.Errorf("get capabilities: %w", err)
	}
	data[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&hdr)), uintptr(unsafe.Pointer(&data[0])), 0)
	if errno != 0 {
		return fmt.Errorf("set capabilities: %w", errno)
	}
	return nil
}
