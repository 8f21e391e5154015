package sockdiag

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrLingering says that there are connections to outside the machine that
// this kernel cannot destroy.
var ErrLingering = errors.New("connections cannot be destroyed")

// Bounds on memory: a dump is read in pieces of readSize, and no more than
// batch sockets are destroyed with one request.
const (
	readSize = 8 << 10 // the kernel allocates as much for each piece
	batch    = 256
	// maxRounds bounds the dumps: each round destroys all that it finds.
	maxRounds = 64
)

// Conn is a socket to the kernel's socket diagnosis. Not safe for concurrent
// use.
type Conn struct {
	fd    int
	seq   uint32
	out   []byte
	in    []byte
	found []peer
	// proc finds connections where the kernel has no diagnosis.
	proc func() (int, error)
}

// Open opens the socket.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("sockdiag: open netlink: %w", err)
	}
	// The kernel answers within the call that asks. This is for a kernel that
	// does not.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("sockdiag: set timeout: %w", err)
	}
	return &Conn{
		fd: fd, out: make([]byte, 0, 4<<10), in: make([]byte, readSize), found: make([]peer, 0, 16), proc: countOutside,
	}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

// DestroyOutside ends every TCP connection to outside the machine, and every
// connected UDP socket where the kernel can, and returns their number. The
// error wraps ErrLingering if TCP connections are left.
//
// Preconditions: CAP_NET_ADMIN. Nobody opens connections meanwhile.
func (c *Conn) DestroyOutside() (int, error) {
	n, err := c.destroyAll(unix.IPPROTO_TCP, func(b []byte, seq uint32) []byte { return dumpTCP(b, seq, connected) })
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
		// This kernel cannot list them that way, or not destroy them.
		left, procErr := c.proc()
		switch {
		case procErr != nil:
			return n, errors.Join(err, procErr)
		case left > 0:
			return n, fmt.Errorf("sockdiag: %d TCP %w: %w", left, ErrLingering, err)
		}
		err = nil
	}
	if err != nil {
		return n, err
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		m, err := c.destroyAll(unix.IPPROTO_UDP, func(b []byte, seq uint32) []byte {
			return dump(b, seq, family, unix.IPPROTO_UDP, 1<<stateEstablished)
		})
		n += m
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // datagrams are the program's to make sense of
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// destroyAll destroys what the dump finds until it finds nothing more.
func (c *Conn) destroyAll(proto uint8, request func([]byte, uint32) []byte) (int, error) {
	total := 0
	for range maxRounds {
		more, err := c.list(proto, request)
		if err != nil {
			return total, err
		}
		if len(c.found) > 0 {
			if err := c.destroyFound(); err != nil {
				return total, err
			}
			total += len(c.found)
		}
		if !more {
			return total, nil
		}
	}
	return total, fmt.Errorf("sockdiag: more than %d sockets: %w", maxRounds*batch, ErrLingering)
}

// list puts up to batch of the dump's sockets that lead out into found.
func (c *Conn) list(proto uint8, request func([]byte, uint32) []byte) (more bool, err error) {
	c.seq++
	c.found = c.found[:0]
	if err := c.write(request(c.out[:0], c.seq)); err != nil {
		return false, err
	}
	for {
		done, err := c.read(func(m message) (bool, error) {
			switch m.typ {
			case unix.NLMSG_DONE, unix.NLMSG_ERROR:
				if errno := m.errno(); errno != 0 {
					return true, fmt.Errorf("sockdiag: list sockets: %w", errno)
				}
				return true, nil
			}
			p, err := parsePeer(m.payload, proto)
			if err != nil {
				return false, fmt.Errorf("sockdiag: list sockets: %w", err)
			}
			switch {
			case !p.outside():
			case len(c.found) == batch:
				more = true
			default:
				c.found = append(c.found, p)
			}
			return false, nil
		})
		if done || err != nil {
			return more, err
		}
	}
}

// destroyFound destroys the sockets in found. Without an acknowledgement the
// kernel answers failures alone; the last request asks for one, and the answers
// come in order.
func (c *Conn) destroyFound() error {
	c.seq++
	out := c.out[:0]
	for i := range c.found {
		flags := uint16(0)
		if i == len(c.found)-1 {
			flags = unix.NLM_F_ACK
			c.seq++
		}
		out = destroy(out, c.seq, flags, &c.found[i])
	}
	if err := c.write(out); err != nil {
		return err
	}
	var failed error
	for {
		done, err := c.read(func(m message) (bool, error) {
			if m.typ != unix.NLMSG_ERROR {
				return false, nil
			}
			// ENOENT: it is gone by itself.
			if errno := m.errno(); errno != 0 && errno != unix.ENOENT && failed == nil {
				failed = fmt.Errorf("sockdiag: destroy socket: %w", errno)
			}
			return m.seq == c.seq, nil
		})
		if err != nil {
			return err
		}
		if done {
			return failed
		}
	}
}

func (c *Conn) write(b []byte) error {
	c.out = b
	if _, err := unix.Write(c.fd, b); err != nil {
		return fmt.Errorf("sockdiag: ask: %w", err)
	}
	return nil
}

// read receives once and handles the messages until one says that it was the
// last of its answer. What is left of earlier answers is skipped.
func (c *Conn) read(handle func(m message) (done bool, err error)) (done bool, err error) {
	n, err := unix.Read(c.fd, c.in)
	if err != nil {
		return false, fmt.Errorf("sockdiag: read answer: %w", err)
	}
	for b := c.in[:n]; len(b) > 0; {
		var m message
		if m, b, err = next(b); err != nil {
			return false, fmt.Errorf("sockdiag: read answer: %w", err)
		}
		if int32(m.seq-c.seq) < -1 {
			continue
		}
		if done, err = handle(m); done || err != nil {
			return done, err
		}
	}
	return false, nil
}
