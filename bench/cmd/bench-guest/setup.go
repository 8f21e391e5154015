package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"thaw/bench/load"
)

// enterImage mounts the image with what fio and iperf3 need, and makes it the
// root of this process.
func enterImage() error {
	for _, m := range []struct{ what, where, kind string }{
		{"dev", "/dev", "devtmpfs"},
		{load.ImageDev, "/newroot", "erofs"},
		{"dev", "/newroot/dev", "devtmpfs"},
		{"proc", "/newroot/proc", "proc"},
		{"sys", "/newroot/sys", "sysfs"},
		{"tmp", "/newroot/tmp", "tmpfs"},
	} {
		flags := uintptr(0)
		if m.kind == "erofs" {
			flags = unix.MS_RDONLY
		}
		// EBUSY: the kernel has mounted it already.
		if err := unix.Mount(m.what, m.where, m.kind, flags, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s on %s: %w", m.what, m.where, err)
		}
	}
	if err := unix.Chroot("/newroot"); err != nil {
		return fmt.Errorf("chroot: %w", err)
	}
	// fio writes its state where it is.
	if err := os.Chdir("/tmp"); err != nil {
		return err
	}
	return os.Setenv("PATH", "/usr/bin:/bin")
}

// configureNetwork gives the interface its address, if there is one.
func configureNetwork() error {
	if _, err := os.Stat("/sys/class/net/" + load.Interface); err != nil {
		return nil
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	set := func(request uint, fill func(*unix.Ifreq) error) error {
		ifr, err := unix.NewIfreq(load.Interface)
		if err == nil {
			err = fill(ifr)
		}
		if err == nil {
			err = unix.IoctlIfreq(fd, request, ifr)
		}
		if err != nil {
			return fmt.Errorf("configure %s: %w", load.Interface, err)
		}
		return nil
	}
	address := func(ip []byte) func(*unix.Ifreq) error {
		return func(ifr *unix.Ifreq) error { return ifr.SetInet4Addr(ip) }
	}
	return errors.Join(
		set(unix.SIOCSIFADDR, address(net.ParseIP(load.GuestIP).To4())),
		set(unix.SIOCSIFNETMASK, address(net.CIDRMask(load.MaskBits, 32))),
		set(unix.SIOCSIFFLAGS, func(ifr *unix.Ifreq) error { ifr.SetUint16(unix.IFF_UP); return nil }),
	)
}
