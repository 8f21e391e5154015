package suite

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"
)

// dialTimeout bounds the connection to a guest's port.
const dialTimeout = 10 * time.Second

// listen makes the socket through which a guest's ports are reached.
func listen(path string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("suite: listen for vsock: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("suite: vsock listener: %w", err)
	}
	return f, nil
}

// dial connects to a port of a guest: "CONNECT port", answered by "OK n".
func dial(ctx context.Context, path string, port uint32) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("suite: connect to vsock: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", port); err != nil {
		c.Close()
		return nil, fmt.Errorf("suite: connect to vsock port %d: %w", port, err)
	}
	// Byte by byte: what follows the line belongs to the stream.
	for b := make([]byte, 1); b[0] != '\n'; {
		if _, err := c.Read(b); err != nil {
			c.Close()
			return nil, fmt.Errorf("suite: connect to vsock port %d: %w", port, err)
		}
	}
	return c, nil
}
