// Package vsock listens and dials on AF_VSOCK (vsock(7)) with few system calls:
// accepting a connection is three, where a system call costs 7 µs on some
// hosts, and the first connection after a restore is part of its time.
package vsock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Host is the context id of the host.
const Host = unix.VMADDR_CID_HOST

// Addr is a context id and a port.
type Addr struct{ CID, Port uint32 }

// Network returns "vsock".
func (Addr) Network() string { return "vsock" }

// String returns CID:PORT.
func (a Addr) String() string { return fmt.Sprintf("%d:%d", a.CID, a.Port) }

// Listener accepts the host's connections.
type Listener struct {
	f      *os.File
	addr   Addr
	closed atomic.Bool
}

// Listen listens on a port, for any context id of this machine: a restored one
// may have got another.
func Listen(port uint32) (*Listener, error) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("vsock: open socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrVM{CID: unix.VMADDR_CID_ANY, Port: port})
	if err == nil {
		err = unix.Listen(fd, unix.SOMAXCONN)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("vsock: listen on port %d: %w", port, err)
	}
	return &Listener{f: os.NewFile(uintptr(fd), "vsock"), addr: Addr{unix.VMADDR_CID_ANY, port}}, nil
}

// Accept returns the next connection of the host's. Others are refused: vsock
// has a loopback, and what is in the guest is not to be trusted with a service
// for the host.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		fd, sa, err := l.accept()
		if err != nil {
			if l.closed.Load() {
				err = net.ErrClosed
			}
			return nil, &net.OpError{Op: "accept", Net: "vsock", Addr: l.addr, Err: err}
		}
		if peer, ok := sa.(*unix.SockaddrVM); ok && peer.CID == Host {
			return newConn(fd, l.addr, Addr{peer.CID, peer.Port}), nil
		}
		unix.Close(fd)
	}
}

func (l *Listener) accept() (fd int, sa unix.Sockaddr, err error) {
	raw, err := l.f.SyscallConn()
	if err != nil {
		return -1, nil, err
	}
	waitErr := raw.Read(func(s uintptr) bool {
		for {
			fd, sa, err = unix.Accept4(int(s), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if waitErr != nil {
		return -1, nil, waitErr
	}
	return fd, sa, err
}

// Close ends Accept.
func (l *Listener) Close() error {
	l.closed.Store(true)
	return l.f.Close()
}

// Addr returns the address.
func (l *Listener) Addr() net.Addr { return l.addr }

// conn is a connection: a file of the runtime's poller with addresses.
type conn struct {
	*os.File
	local, remote Addr
}

func newConn(fd int, local, remote Addr) *conn {
	return &conn{os.NewFile(uintptr(fd), "vsock"), local, remote}
}

// LocalAddr returns the address of this end.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other end.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// Dial connects to a port of a context id. It blocks until the peer has
// answered, or vsock's own two seconds are over.
func Dial(cid, port uint32) (net.Conn, error) {
	remote := Addr{cid, port}
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("vsock: open socket: %w", err)
	}
	for {
		err = unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: port})
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err == nil || errors.Is(err, unix.EISCONN) {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		unix.Close(fd)
		return nil, &net.OpError{Op: "dial", Net: "vsock", Addr: remote, Err: err}
	}
	return newConn(fd, Addr{CID: unix.VMADDR_CID_ANY}, remote), nil
}
