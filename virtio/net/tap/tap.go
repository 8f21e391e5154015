// Package tap opens the host's end of a guest's network: a tap interface
// whose descriptor is handed to the jailed process that emulates the device
// (package net). All that needs privilege happens here, before: afterwards
// frames are read and written, and no request of the TUN driver is made.
//
// Frames on the descriptor carry the 12-byte header of virtio 1.3 §5.1.6,
// little endian, and no packet information.
package tap

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// headerSize is the length of virtio's header with num_buffers.
const headerSize = 12

// offloads are what the device may get and give unsegmented or without
// checksum: TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, TUN_F_TSO_ECN.
const offloads = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN

// Config says which tap is wanted.
type Config struct {
	// Name of the interface, at most 15 bytes; "tap%d" lets the kernel
	// choose a number. An interface that exists is opened.
	Name string
	// Offload leaves checksums and TCP segmentation to whoever receives the
	// frame. The guest's driver must then take part (net.Options).
	Offload bool
	// Persist keeps the interface when its last descriptor is closed.
	Persist bool
}

// Open makes or opens a tap in the network namespace of the calling thread
// and returns its descriptor and its name. The interface is down if it is
// new. The descriptor blocks, so that Go's poller leaves it alone: with the
// poller on it, each frame would wake a second waiter.
func Open(c Config) (*os.File, string, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, "", fmt.Errorf("tap: open /dev/net/tun: %w", err)
	}
	name, err := configure(fd, c)
	if err != nil {
		unix.Close(fd)
		return nil, "", fmt.Errorf("tap: configure %q: %w", c.Name, err)
	}
	return os.NewFile(uintptr(fd), name), name, nil
}

func configure(fd int, c Config) (name string, err error) {
	ifr, err := unix.NewIfreq(c.Name)
	if err != nil {
		return "", fmt.Errorf("name: %w", err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		return "", fmt.Errorf("attach: %w", err)
	}
	for _, set := range []struct {
		what    string
		request uint
		value   int
	}{
		{"header size", unix.TUNSETVNETHDRSZ, headerSize},
		{"byte order", unix.TUNSETVNETLE, 1},
	} {
		if err := unix.IoctlSetPointerInt(fd, set.request, set.value); err != nil {
			return "", fmt.Errorf("set %s: %w", set.what, err)
		}
	}
	flags := 0
	if c.Offload {
		flags = offloads
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, flags); err != nil {
		return "", fmt.Errorf("set offloads: %w", err)
	}
	if c.Persist {
		if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
			return "", fmt.Errorf("make persistent: %w", err)
		}
	}
	return ifr.Name(), nil
}
