package integration

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"thaw/internal/kvmtest"
	"thaw/virtio/net/tap"
)

// Addresses of the two ends of a guest's network, the same in every namespace.
const (
	hostIP  = "10.99.0.1"
	guestIP = "10.99.0.2"
)

// guestMAC is the guest's.
var guestMAC = [6]byte{2, 0, 0, 0, 0, 2}

// namespace is a network namespace with the host's end of a guest's network:
// a tap with offloads.
type namespace struct {
	tap  *os.File
	work chan func() // runs on a thread in the namespace
}

// newNamespace makes one on a thread of its own, which ends with the test and
// takes it along.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{work: make(chan func())}
	made, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread is in the namespace
		err := n.make()
		made <- err
		if err != nil {
			return
		}
		for f := range n.work {
			f()
		}
	}()
	err := <-made
	t.Cleanup(func() {
		close(n.work)
		<-ended
		if n.tap != nil {
			n.tap.Close()
		}
	})
	if err != nil {
		kvmtest.Unavailable(t, "no network namespace with a tap: %v", err)
	}
	return n
}

func (n *namespace) make() error {
	ns, err := netns.New()
	if err != nil {
		return err
	}
	defer ns.Close()
	if n.tap, _, err = tap.Open(tap.Config{Name: "tap0", Offload: true}); err != nil {
		return err
	}
	link, err := netlink.LinkByName("tap0")
	if err != nil {
		return err
	}
	// The same everywhere: a restored guest remembers it.
	if err := netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 0, 0, 1}); err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(hostIP + "/24")
	if err != nil {
		return err
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// listen listens on a port of the host's end.
func (n *namespace) listen(t *testing.T, port int) net.Listener {
	t.Helper()
	var l net.Listener
	var err error
	done := make(chan struct{})
	n.work <- func() {
		defer close(done)
		l, err = net.Listen("tcp", fmt.Sprintf("%s:%d", hostIP, port))
	}
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// dial connects to a port of the guest.
func (n *namespace) dial(t *testing.T, port int) net.Conn {
	t.Helper()
	var c net.Conn
	var err error
	done := make(chan struct{})
	n.work <- func() {
		defer close(done)
		c, err = net.DialTimeout("tcp", fmt.Sprintf("%s:%d", guestIP, port), 20*time.Second)
	}
	<-done
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
