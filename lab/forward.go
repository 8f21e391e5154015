package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// listen makes the sockets that the options ask for. Who connects before the lab
// is up waits for it.
func (l *Lab) listen() error {
	if l.opts.control {
		control, err := listenUnix(filepath.Join(l.opts.StateDir, controlFile))
		if err != nil {
			return err
		}
		l.serveUnix(control, l.dialUp)
	}
	for host, lab := range l.opts.Forward {
		if err := l.ForwardUnix(host, lab); err != nil {
			return err
		}
	}
	return nil
}

// ForwardUnix makes a Unix socket at hostPath whose connections go to the one at
// labPath in the lab, until Close. A connection to a socket that is missing in
// the lab is closed at once. A stale socket file is replaced.
func (l *Lab) ForwardUnix(hostPath, labPath string) error {
	if !filepath.IsAbs(labPath) {
		return fmt.Errorf("lab: forward to %q: want an absolute path", labPath)
	}
	listener, err := listenUnix(hostPath)
	if err != nil {
		return err
	}
	l.serveUnix(listener, func(ctx context.Context) (net.Conn, error) {
		return l.DialUnix(ctx, labPath)
	})
	return nil
}

// serveUnix splices each connection of listener with one that dial gives, and
// closes them all when the lab is closed.
func (l *Lab) serveUnix(listener *net.UnixListener, dial func(context.Context) (net.Conn, error)) {
	stop := context.AfterFunc(l.ctx, func() { listener.Close() })
	var conns sync.WaitGroup
	l.wg.Go(func() {
		defer stop()
		defer conns.Wait()
		for {
			c, err := listener.AcceptUnix()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				l.opts.Log.Error("accept", "socket", listener.Addr(), "error", err)
				listener.Close()
				return
			}
			conns.Go(func() { l.spliceTo(c, dial) })
		}
	})
}

func (l *Lab) spliceTo(c *net.UnixConn, dial func(context.Context) (net.Conn, error)) {
	defer context.AfterFunc(l.ctx, func() { c.Close() })()
	stream, err := dial(l.ctx)
	if err != nil {
		l.opts.Log.Warn("forward", "error", err)
		c.Close()
		return
	}
	labproto.Splice(c, stream)
}

// listenUnix listens at path; a file left by a dead process is in the way only
// when somebody answers at it. Who may connect is the folder's and the file's
// mode: the owner alone.
func listenUnix(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lab: make folder of socket: %w", err)
	}
	addr := &net.UnixAddr{Name: path, Net: "unix"}
	if c, err := net.DialUnix("unix", nil, addr); err == nil {
		c.Close()
		return nil, fmt.Errorf("lab: listen at %s: %w", path, unix.EADDRINUSE)
	} else if errors.Is(err, unix.ECONNREFUSED) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("lab: remove stale socket: %w", err)
		}
	}
	listener, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, fmt.Errorf("lab: listen: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("lab: protect socket: %w", err)
	}
	return listener, nil
}
