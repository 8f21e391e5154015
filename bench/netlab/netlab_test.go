package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

func TestLab(t *testing.T) {
	if os.Geteuid() != 0 || unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK) != nil {
		kvmtest.Unavailable(t, "no root or no /dev/net/tun")
	}
	if _, err := exec.LookPath("iperf3"); err != nil {
		kvmtest.Unavailable(t, "no iperf3: %v", err)
	}
	l, err := New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pid := l.server.Process.Pid
	if !listens(pid) {
		t.Error("nothing listens")
	}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid)); err != nil || theirs == ours {
		t.Errorf("the server is in %s, %v", theirs, err)
	}
	if _, err := netlink.LinkByName(l.Tap.Name()); !errors.As(err, new(netlink.LinkNotFoundError)) {
		t.Errorf("the tap is seen from outside: %v", err)
	}
	l.Close()
	if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the server is still there: %v", err)
	}
}

func TestNoIperf(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := New(t.Context()); !errors.Is(err, ErrNoIperf) {
		t.Errorf("got %v", err)
	}
}
