package net

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"thaw/virtio/net/tap"
)

// namespace is a network namespace that holds one tap, which is up and has an
// address: nothing in it can reach anything but the device.
type namespace struct {
	t      testing.TB
	handle netns.NsHandle
	tap    *os.File
	mac    [6]byte
	index  int
}

// newNamespace skips the test where namespaces or taps are not to be had;
// with REQUIRE_NETNS=1 it fails.
func newNamespace(t testing.TB, address string) *namespace {
	t.Helper()
	n := &namespace{t: t, handle: netns.None()}
	t.Cleanup(func() {
		if n.tap != nil {
			n.tap.Close()
		}
		if n.handle.IsOpen() {
			n.handle.Close()
		}
	})
	onThread(func() {
		var err error
		if n.handle, err = netns.New(); err != nil {
			unavailable(t, err)
			return
		}
		file, name, err := tap.Open(tap.Config{Name: "vm%d", Offload: true})
		if err != nil {
			unavailable(t, err)
			return
		}
		n.tap = file
		n.setUp(name, address)
	})
	if n.tap == nil {
		t.SkipNow()
	}
	return n
}

func unavailable(t testing.TB, err error) {
	if os.Getenv("REQUIRE_NETNS") == "1" {
		t.Error(err)
	}
	t.Logf("needs root and /dev/net/tun: %v", err)
}

// setUp gives the tap its address. Preconditions: on a thread in n.
func (n *namespace) setUp(name, address string) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		n.t.Error(err)
		return
	}
	n.mac, n.index = [6]byte(link.Attrs().HardwareAddr), link.Attrs().Index
	addr, err := netlink.ParseAddr(address)
	if err == nil {
		addr.Flags = unix.IFA_F_NODAD // IPv6: there is nobody to ask whether it is taken
		err = netlink.AddrAdd(link, addr)
	}
	if err == nil {
		err = netlink.LinkSetUp(link)
	}
	if err != nil {
		n.t.Error(err)
	}
}

// do runs f on a thread in the namespace.
func (n *namespace) do(f func() error) {
	n.t.Helper()
	var err error
	onThread(func() {
		if err = netns.Set(n.handle); err == nil {
			err = f()
		}
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// onThread runs f on a thread that ends with it, whatever f did to it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		f()
	}()
	<-done
}

// packetSocket returns a socket that sends frames with their virtio header
// out of the tap's interface, to the device.
func (n *namespace) packetSocket() int {
	n.t.Helper()
	fd := -1
	n.do(func() error {
		var err error
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		for _, option := range []int{unix.PACKET_VNET_HDR, unix.PACKET_QDISC_BYPASS} {
			if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, option, 1); err != nil {
				return err
			}
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: 0, Ifindex: n.index})
	})
	n.t.Cleanup(func() { unix.Close(fd) })
	return fd
}
