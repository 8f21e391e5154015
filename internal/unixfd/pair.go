package unixfd

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Kind is a socket type for [Pair].
type Kind int

// Socket types.
const (
	Stream    Kind = unix.SOCK_STREAM
	SeqPacket Kind = unix.SOCK_SEQPACKET // keeps message boundaries
)

// Pair makes two connected Unix sockets, close-on-exec and non-blocking: both ends take deadlines.
func Pair(kind Kind) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, int(kind)|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("unixfd: make socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "socketpair"), os.NewFile(uintptr(fds[1]), "socketpair"), nil
}

// PairConn is [Pair] with the first end as a *net.UnixConn, for callers that hand the second one away.
func PairConn(kind Kind) (*net.UnixConn, *os.File, error) {
	a, b, err := Pair(kind)
	if err != nil {
		return nil, nil, err
	}
	// FileConn duplicates: the original end is closed in any case.
	conn, err := net.FileConn(a)
	a.Close()
	if err != nil {
		b.Close()
		return nil, nil, fmt.Errorf("unixfd: wrap socket: %w", err)
	}
	return conn.(*net.UnixConn), b, nil
}

// Number returns the descriptor number of f without the change to blocking mode that (*os.File).Fd makes,
// which would take a pollable descriptor away from Go's poller, in every process that shares it.
// The number is good as long as the caller keeps f open.
func Number(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("unixfd: descriptor of %s: %w", f.Name(), err)
	}
	fd := -1
	if err := raw.Control(func(n uintptr) { fd = int(n) }); err != nil {
		return -1, fmt.Errorf("unixfd: descriptor of %s: %w", f.Name(), err)
	}
	return fd, nil
}
