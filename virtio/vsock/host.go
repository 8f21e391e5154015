package vsock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The host's side of the listener: one line asks for a guest's port.
const (
	connectVerb    = "CONNECT "
	maxConnectLine = 32 // bytes
	// connectTimeout is how long a host process may take to write its line, and
	// then wait for a guest that is ready.
	connectTimeout = 5 * time.Second
	// maxEarly is how many bytes of a stream are read before its guest has accepted, and a
	// line's worth more.
	maxEarly = 2 << 10
)

var errConnectLine = errors.New("vsock: not a line \"CONNECT port\"")

// Host is the host's end of a machine's sockets. It outlives the devices, which a
// restore and a rollback replace: whoever connects meanwhile waits for the next
// one.
type Host struct {
	listener *net.UnixListener
	// dials bounds the calls of Options.Connect that have not returned, of all
	// devices that there were.
	dials  chan struct{}
	closed chan struct{}

	mu      sync.Mutex
	started bool          // protected by mu; the accept loop runs
	session *session      // protected by mu; of the active device
	changed chan struct{} // protected by mu; closed when session changes
}

// NewHost returns the host's end that takes connections from listener, which may
// be nil, and which it closes.
func NewHost(listener *net.UnixListener) *Host {
	return &Host{listener: listener, dials: make(chan struct{}, maxConns), closed: make(chan struct{}), changed: make(chan struct{})}
}

// Close closes the listener. It is called once. Preconditions: the device is reset.
func (h *Host) Close() error {
	close(h.closed)
	if h.listener == nil {
		return nil
	}
	return h.listener.Close()
}

// use makes s, or nothing, what connections go to.
func (h *Host) use(s *session) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.session = s
	close(h.changed)
	h.changed = make(chan struct{})
	if s != nil && h.listener != nil && !h.started {
		h.started = true
		go h.accept()
	}
}

// ready waits for a session whose guest may be connected to; nil when there is
// none in time.
func (h *Host) ready(late <-chan time.Time) *session {
	for {
		h.mu.Lock()
		s, changed := h.session, h.changed
		h.mu.Unlock()
		var ready chan struct{}
		if s != nil {
			ready = s.ready
		}
		select {
		case <-ready:
			return s
		case <-changed:
		case <-late:
			return nil
		case <-h.closed:
			return nil
		}
	}
}

// accept serves the listener until it is closed.
func (h *Host) accept() {
	for {
		socket, err := h.listener.AcceptUnix()
		if err != nil {
			return
		}
		go h.serve(socket)
	}
}

// Serve serves a stream Unix socket, of which it takes over the file, as if it had been
// accepted.
func (h *Host) Serve(file *os.File) error {
	socket, err := unixConn(file)
	if err == nil {
		go h.serve(socket)
	}
	return err
}

// serve reads the line and connects to the guest.
func (h *Host) serve(socket *net.UnixConn) {
	late := time.NewTimer(connectTimeout)
	defer late.Stop()
	socket.SetDeadline(time.Now().Add(connectTimeout))
	port, early, err := readConnect(socket)
	if err != nil {
		socket.Close()
		return
	}
	socket.SetDeadline(time.Time{})
	if s := h.ready(late.C); s == nil || !s.serve(socket, port, early) {
		socket.Close()
		if s != nil {
			s.device.metrics.Refused.Add(1)
		}
	}
}

// serve connects socket, of which early was read, to the guest's port and moves bytes until
// one side ends; false when the guest did not accept.
func (s *session) serve(socket *net.UnixConn, port uint32, early []byte) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.tasks.Add(1)
	s.mu.Unlock()
	defer s.tasks.Done()
	if len(early) == 0 {
		early = waiting(socket, early)
	}
	c := s.hostConnects(port, early)
	if c == nil {
		return false
	}
	socket.SetWriteDeadline(time.Now().Add(connectTimeout))
	if _, err := io.WriteString(socket, "OK "+strconv.FormatUint(uint64(c.pair.host), 10)+"\n"); err != nil {
		c.reset()
		return false
	}
	socket.SetWriteDeadline(time.Time{})
	if c.open(socket) {
		c.pump()
	}
	return true
}

// readConnect reads the line. early is what was read of the stream behind it, with room for
// some more.
func readConnect(socket *net.UnixConn) (port uint32, early []byte, err error) {
	b := make([]byte, 0, maxConnectLine+maxEarly)
	for {
		n, err := socket.Read(b[len(b):cap(b)])
		if err != nil {
			return 0, nil, fmt.Errorf("vsock: read connect line: %w", err)
		}
		b = b[:len(b)+n]
		if end := bytes.IndexByte(b[:min(len(b), maxConnectLine)], '\n'); end >= 0 {
			port, err = parseConnect(string(b[:end]))
			return port, b[end+1:], err
		}
		if len(b) >= maxConnectLine {
			return 0, nil, errConnectLine
		}
	}
}

// waiting appends to b, as far as there is room, what waits in socket.
func waiting(socket *net.UnixConn, b []byte) []byte {
	raw, err := socket.SyscallConn()
	if err != nil {
		return b
	}
	raw.Read(func(fd uintptr) bool {
		// The end of the stream and errors are for who reads next.
		if n, err := unix.Read(int(fd), b[len(b):cap(b)]); err == nil {
			b = b[:len(b)+n]
		}
		return true
	})
	return b
}

// parseConnect parses a line without its end.
func parseConnect(line string) (port uint32, err error) {
	number, ok := strings.CutPrefix(line, connectVerb)
	if !ok {
		return 0, errConnectLine
	}
	v, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, errConnectLine
	}
	return uint32(v), nil
}

// dial asks Options.Connect for the host's end of a connection to port. It does
// not wait beyond the end of the session: who answers may be waiting for that,
// as the answer to a pause does.
func (s *session) dial(port uint32) (*net.UnixConn, error) {
	connect, dials := s.device.options.Connect, s.device.options.Host.dials
	select {
	case dials <- struct{}{}:
	default:
		return nil, errTooManyDials
	}
	type answer struct {
		file *os.File
		err  error
	}
	answers := make(chan answer)
	go func() {
		defer func() { <-dials }()
		file, err := connect(port)
		select {
		case answers <- answer{file, err}:
		case <-s.quit:
			if err == nil {
				file.Close()
			}
		}
	}()
	select {
	case a := <-answers:
		if a.err != nil {
			return nil, a.err
		}
		return unixConn(a.file)
	case <-s.quit:
		return nil, errEnded
	}
}

var (
	errTooManyDials = errors.New("vsock: too many connections of the guest's wait for the host")
	errEnded        = errors.New("vsock: device was reset")
)

// unixConn takes over file, a stream Unix socket.
func unixConn(file *os.File) (*net.UnixConn, error) {
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("vsock: take the host's end: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("vsock: the host's end is not a Unix socket")
	}
	return u, nil
}
