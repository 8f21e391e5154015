// Package netlab makes a network of two: a network namespace with nothing in
// it but a tap, the host's end of a guest's interface, and iperf3's server on
// it. The namespace has no name: the kernel removes it with its last user,
// however bench ends.
package netlab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"thaw/bench/load"
	"thaw/virtio/net/tap"
)

// ErrNoIperf is wrapped when iperf3 is missing on the host.
var ErrNoIperf = errors.New("iperf3 is not installed: apt-get install iperf3")

// Lab is the network. Close gives everything back.
type Lab struct {
	Tap    *os.File // the host's end, for one machine
	server *exec.Cmd
	stop   chan struct{} // closed: the thread in the namespace ends
	done   chan struct{}
}

// New makes the network and waits until the server listens.
func New(ctx context.Context) (*Lab, error) {
	program, err := exec.LookPath("iperf3")
	if err != nil {
		return nil, fmt.Errorf("netlab: %w", ErrNoIperf)
	}
	l := &Lab{stop: make(chan struct{}), done: make(chan struct{})}
	made := make(chan error)
	onOwnThread(func() { l.hold(program, made) })
	if err := <-made; err != nil {
		l.Close()
		return nil, err
	}
	if err := l.awaitServer(ctx); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// onOwnThread runs f on a thread that ends with it, and returns when that thread
// is found. It is not the main thread, which never ends and would stay in the
// namespace.
func onOwnThread(f func()) {
	found := make(chan struct{})
	go func() {
		defer close(found)
		runtime.LockOSThread() // not unlocked for f: its thread is not used again
		if unix.Gettid() == os.Getpid() {
			onOwnThread(f)
			runtime.UnlockOSThread()
			return
		}
		found <- struct{}{}
		f()
	}()
	<-found
}

// hold runs on a thread in the namespace, which stays as long as the server:
// the kernel kills a child with the thread that made it (PDEATHSIG).
func (l *Lab) hold(program string, made chan<- error) {
	defer close(l.done)
	err := l.make()
	if err == nil {
		l.server = exec.Command(program, "--server", "--bind", load.HostIP)
		l.server.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
		err = l.server.Start()
	}
	made <- err
	if err == nil {
		<-l.stop
		_ = l.server.Process.Kill() // it may have ended
		_ = l.server.Wait()         // killed
	}
}

// make makes the namespace, which the calling thread is in from then on.
func (l *Lab) make() error {
	handle, err := netns.New()
	if err != nil {
		return fmt.Errorf("netlab: make network namespace (root is needed): %w", err)
	}
	defer handle.Close()
	var name string
	if l.Tap, name, err = tap.Open(tap.Config{Name: "vm%d", Offload: true}); err != nil {
		return fmt.Errorf("netlab: %w", err)
	}
	for _, name := range []string{"lo", name} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("netlab: find %s: %w", name, err)
		}
		if name != "lo" {
			address := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(load.HostIP), Mask: net.CIDRMask(load.MaskBits, 32)}}
			if err := netlink.AddrAdd(link, address); err != nil {
				return fmt.Errorf("netlab: set address of %s: %w", name, err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("netlab: bring up %s: %w", name, err)
		}
	}
	return nil
}

// awaitServer waits until the server has a listening socket in its namespace.
func (l *Lab) awaitServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		if listens(l.server.Process.Pid) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("netlab: iperf3 does not listen: %w", context.Cause(ctx))
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// Close ends the server and removes the tap and the namespace.
func (l *Lab) Close() {
	close(l.stop)
	<-l.done
	if l.Tap != nil {
		l.Tap.Close()
	}
}
