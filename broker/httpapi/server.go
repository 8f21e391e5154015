package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker"
)

// Limits of the HTTP server itself.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
)

type tenantKey struct{}

// tenantOf is the caller's tenant, which NewServer put into the connection's context.
func tenantOf(ctx context.Context) (string, error) {
	if t, ok := ctx.Value(tenantKey{}).(string); ok {
		return t, nil
	}
	return "", api.Errorf(api.CodeForbidden, "the caller cannot be identified").WithRemedy("connect through the daemon's Unix socket")
}

// NewServer makes a server for connections of a Unix socket.
func NewServer(b *broker.Broker, log *slog.Logger) *http.Server { return newServer(Handler(b), log) }

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	known := newConns()
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ConnState:         known.state,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			uid, err := peerUID(c)
			if err != nil {
				log.Warn("caller not identified", "error", err)
				return ctx // handlers refuse
			}
			if !known.take(c, uid) {
				log.Debug("caller has too many connections", "uid", uid, "most", maxConns)
				c.Close()
				return ctx
			}
			return context.WithValue(ctx, tenantKey{}, broker.TenantOfUID(uid))
		},
	}
}

// peerUID asks the kernel who connected (unix(7), SO_PEERCRED).
func peerUID(c net.Conn) (uint32, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("httpapi: %T has no peer credentials", c)
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("httpapi: peer credentials: %w", err)
	}
	var cred *unix.Ucred
	var serr error
	err = raw.Control(func(fd uintptr) { cred, serr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, serr); err != nil {
		return 0, fmt.Errorf("httpapi: peer credentials: %w", err)
	}
	return cred.Uid, nil
}

// Listen makes the daemon's socket, mode 0660. A socket that a daemon answers on
// gives an error with code socket_in_use; one that nobody answers on is replaced.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("httpapi: make socket directory: %w", err)
	}
	// Two daemons that start at one time both find a stale socket: one goes first.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("httpapi: open socket lock: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("httpapi: lock socket: %w", err)
	}
	if err := clearStale(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("httpapi: listen: %w", err)
	}
	if err := os.Chmod(path, 0o660); err != nil {
		l.Close()
		return nil, fmt.Errorf("httpapi: set socket mode: %w", err)
	}
	return l, nil
}

func clearStale(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("httpapi: look at socket: %w", err)
	}
	if st.Mode()&fs.ModeSocket == 0 {
		return api.Errorf(api.CodeSocketInUse, "%s exists and is not a socket", path).WithRemedy("remove it, or choose another with --socket")
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		c.Close()
	}
	// Only a refused connection shows that nobody listens; a full backlog is a busy daemon.
	if !errors.Is(err, unix.ECONNREFUSED) {
		return api.Errorf(api.CodeSocketInUse, "another daemon answers on %s", path).WithCause(err).
			WithRemedy("stop it, or choose another socket with --socket")
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("httpapi: remove stale socket: %w", err)
	}
	return nil
}
