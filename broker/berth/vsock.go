package berth

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/unixfd"
)

const vsockName = "vsock"

// socket is where a machine's vsock ports are reached: a Unix stream socket in a
// directory that only root can enter.
type socket struct {
	dir  *os.File
	path string
}

// listen makes the socket and returns its listening end for the VMM. The path goes
// through a descriptor of the directory: a socket's path has 108 bytes at most
// (unix(7)), a state directory's may have more.
func listen(dir string) (*socket, *os.File, error) {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("berth: open machine directory: %w", err)
	}
	s := &socket{dir: os.NewFile(uintptr(fd), dir), path: "/proc/self/fd/" + strconv.Itoa(fd) + "/" + vsockName}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	if err != nil {
		s.close()
		return nil, nil, fmt.Errorf("berth: listen for vsock: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		s.close()
		return nil, nil, fmt.Errorf("berth: vsock listener: %w", err)
	}
	return s, f, nil
}

func (s *socket) close() error { return s.dir.Close() }

// Dial connects to a port of the guest, and returns once the guest has accepted.
func (b *Berth) Dial(ctx context.Context, port uint32) (net.Conn, error) {
	c, err := b.DialAhead(ctx, port)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = c.Connect()
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("berth: connect to vsock port %d: %w", port, err)
	}
	return c, nil
}

// DialAhead connects to the socket only: the connection may be written to while the
// machine does not run yet, and the guest accepts it when it does.
func (b *Berth) DialAhead(ctx context.Context, port uint32) (*Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", b.socket.path)
	if err != nil {
		return nil, fmt.Errorf("berth: connect to vsock: %w", err)
	}
	return newConn(c, port), nil
}

// Stream returns a connection to a port of the guest, which may be written to while the
// machine does not run yet, and its other end: for the VMM, which serves it when the
// machine runs.
func Stream(port uint32) (*Conn, *os.File, error) {
	ours, theirs, err := unixfd.PairConn(unixfd.Stream)
	if err != nil {
		return nil, nil, fmt.Errorf("berth: connect to vsock: %w", err)
	}
	return newConn(ours, port), theirs, nil
}
