package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	vsockName = "vsock"
	// maxAnswer bounds the VMM's answer line to CONNECT, in bytes.
	maxAnswer = 32
)

// vsockSocket is where a machine's vsock ports are reached: a Unix stream socket in
// a directory that only root can enter.
type vsockSocket struct {
	dir *os.File
}

// listenVsock makes the socket and returns its listening end for the VMM. The path
// goes through a descriptor of the directory: a socket's path has 108 bytes at
// most (unix(7)), a state directory's may have more.
func listenVsock(dir string) (*vsockSocket, *os.File, error) {
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("launch: open machine directory: %w", err)
	}
	s := &vsockSocket{os.NewFile(uintptr(fd), dir)}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path(), Net: "unix"})
	if err != nil {
		s.close()
		return nil, nil, fmt.Errorf("launch: listen for vsock: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		s.close()
		return nil, nil, fmt.Errorf("launch: vsock listener: %w", err)
	}
	return s, f, nil
}

func (s *vsockSocket) path() string { return fmt.Sprintf("/proc/self/fd/%d/%s", s.dir.Fd(), vsockName) }

func (s *vsockSocket) close() error { return s.dir.Close() }

// dial connects to a port of the guest: "CONNECT port", answered by "OK n".
func (s *vsockSocket) dial(ctx context.Context, port uint32) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.path())
	if err != nil {
		return nil, fmt.Errorf("launch: connect to vsock: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	err = handshake(c, port)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("launch: connect to vsock port %d: %w", port, err)
	}
	return c, nil
}

func handshake(c net.Conn, port uint32) error {
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", port); err != nil {
		return err
	}
	// Byte by byte: what follows the line belongs to the stream.
	var line []byte
	b := make([]byte, 1)
	for len(line) < maxAnswer {
		if _, err := c.Read(b); err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		if b[0] == '\n' {
			if !strings.HasPrefix(string(line), "OK ") {
				return fmt.Errorf("refused: %q", line)
			}
			return nil
		}
		line = append(line, b[0])
	}
	return errors.New("answer is too long")
}
