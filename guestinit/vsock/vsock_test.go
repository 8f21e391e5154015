package vsock

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const port = 0x7_1024

func listen(t *testing.T) *Listener {
	t.Helper()
	l, err := Listen(port)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		t.Skipf("no vsock in this kernel: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestListenerCloses(t *testing.T) {
	l := listen(t)
	done := make(chan error)
	go func() {
		_, err := l.Accept()
		done <- err
	}()
	time.Sleep(20 * time.Millisecond)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("error is %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

// A connection of the machine itself is closed, never given out.
func TestLoopbackIsRefused(t *testing.T) {
	l := listen(t)
	accepted := make(chan net.Conn, 1)
	go func() {
		if c, err := l.Accept(); err == nil {
			accepted <- c
		}
	}()
	c, err := Dial(unix.VMADDR_CID_LOCAL, port)
	if err != nil {
		t.Skipf("no vsock loopback: %v", err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read gave %v", err)
	}
	select {
	case <-accepted:
		t.Error("it was accepted")
	default:
	}
}

func TestConn(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var a, b net.Conn = newConn(fds[0], Addr{3, 1}, Addr{Host, 2}), newConn(fds[1], Addr{}, Addr{})
	defer b.Close()
	if a.RemoteAddr().String() != "2:2" || a.LocalAddr().Network() != "vsock" {
		t.Errorf("addresses %v, %v", a.LocalAddr(), a.RemoteAddr())
	}
	if _, err := a.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	buf := make([]byte, 2)
	if n, err := b.Read(buf); n != 1 || err != nil {
		t.Error(n, err)
	}
	_ = b.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := b.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	a.Close()
	if _, err := a.Read(buf); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error is %v", err)
	}
}

func TestDialNobody(t *testing.T) {
	listen(t).Close() // skips without vsock
	if _, err := Dial(unix.VMADDR_CID_LOCAL, port+1); err == nil {
		t.Error("connected to nobody")
	}
}
