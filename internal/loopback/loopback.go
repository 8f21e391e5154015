// Package loopback brings up the loopback interface, for what is PID 1 of a
// machine.
package loopback

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Up sets IFF_UP on lo in the caller's network namespace, for which it needs
// CAP_NET_ADMIN there; the kernel gives the interface its addresses.
func Up() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("loopback: open socket: %w", err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("loopback: name interface: %w", err)
	}
	req.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("loopback: set flags: %w", err)
	}
	return nil
}
