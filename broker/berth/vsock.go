package berth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"thaw/internal/unixfd"
)

// listen makes a machine's socket, a Unix stream socket where its vsock ports are reached,
// and returns its listening end for the VMM.
func (d *socketDir) listen(id string) (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path(id), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("berth: listen for vsock: %w", err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("berth: vsock listener: %w", err), d.remove(id))
	}
	return f, nil
}

// remove takes the name of a machine's socket away: nothing connects to it any more.
func (d *socketDir) remove(id string) error {
	if err := os.Remove(d.path(id)); err != nil {
		return fmt.Errorf("berth: remove vsock socket: %w", err)
	}
	return nil
}

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
	c, err := d.DialContext(ctx, "unix", b.yard.sockets.path(b.ID))
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
