package tap

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread in a network namespace of its own, which
// ends with it. It skips where that is not allowed; with REQUIRE_NETNS=1 it
// fails.
func inNamespace(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	missing := make(chan error)
	go func() {
		defer close(missing)
		runtime.LockOSThread() // and never unlocked: the thread is not used again
		handle, err := netns.New()
		if err == nil {
			defer handle.Close()
			err = unix.Access("/dev/net/tun", unix.R_OK|unix.W_OK)
		}
		if err != nil {
			missing <- err
			return
		}
		f(t)
	}()
	if err := <-missing; err != nil {
		if os.Getenv("REQUIRE_NETNS") == "1" {
			t.Fatal(err)
		}
		t.Skipf("needs root and /dev/net/tun: %v", err)
	}
}

func TestOpen(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		file, name, err := Open(Config{Name: "vm%d", Offload: true})
		if err != nil {
			t.Error(err)
			return
		}
		fd := int(file.Fd())
		if name != "vm0" {
			t.Errorf("name %q", name)
		}
		if n, err := unix.IoctlGetInt(fd, unix.TUNGETVNETHDRSZ); err != nil || n != headerSize {
			t.Errorf("header of %d bytes, %v", n, err)
		}
		ifr, err := unix.NewIfreq("")
		if err != nil {
			t.Error(err)
			return
		}
		want := uint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNGETIFF, ifr); err != nil || ifr.Uint16()&want != want {
			t.Errorf("flags %#x, %v", ifr.Uint16(), err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
			t.Errorf("file flags %#x, %v: Go's poller would watch it", flags, err)
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("descriptor flags %#x, %v", flags, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
		if _, err := netlink.LinkByName(name); !errors.As(err, new(netlink.LinkNotFoundError)) {
			t.Errorf("interface after close: %v", err)
		}
	})
}

func TestPersist(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		for range 2 { // made, then opened
			file, name, err := Open(Config{Name: "keep", Persist: true})
			if err != nil {
				t.Error(err)
				return
			}
			file.Close()
			if _, err := netlink.LinkByName(name); err != nil {
				t.Errorf("interface after close: %v", err)
			}
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		if _, _, err := Open(Config{Name: "sixteen-bytes-xx"}); err == nil {
			t.Error("a name that is too long was taken")
		}
		file, name, err := Open(Config{Name: "busy"})
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		if _, _, err := Open(Config{Name: name}); !errors.Is(err, unix.EBUSY) {
			t.Errorf("opened twice: %v", err)
		}
	})
}
