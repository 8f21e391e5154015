package vsock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// The host's side of the listener: one line asks for a guest's port.
const (
	connectVerb    = "CONNECT "
	maxConnectLine = 32 // bytes
	connectTimeout = 5 * time.Second
)

var errConnectLine = errors.New("vsock: not a line \"CONNECT port\"")

// accept serves the listener until it is closed.
func (d *Device) accept() {
	for {
		socket, err := d.options.Listener.AcceptUnix()
		if err != nil {
			return
		}
		go d.serveHost(socket)
	}
}

// serveHost reads the line and connects to the guest.
func (d *Device) serveHost(socket *net.UnixConn) {
	socket.SetDeadline(time.Now().Add(connectTimeout))
	port, err := readConnect(socket)
	if err != nil {
		socket.Close()
		return
	}
	s := d.session()
	if s == nil || !s.serve(socket, port) {
		d.metrics.Refused.Add(1)
		socket.Close()
	}
}

// serve connects socket to the guest's port and moves bytes until one side
// ends; false when the guest did not accept.
func (s *session) serve(socket *net.UnixConn, port uint32) bool {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return false
	}
	s.tasks.Add(1)
	s.mu.Unlock()
	defer s.tasks.Done()
	c := s.hostConnects(port)
	if c == nil {
		return false
	}
	if _, err := fmt.Fprintf(socket, "OK %d\n", c.pair.host); err != nil {
		c.reset()
		return false
	}
	socket.SetDeadline(time.Time{})
	if c.open(socket) {
		c.pump()
	}
	return true
}

// readConnect reads the line byte by byte: what follows it belongs to the
// stream.
func readConnect(socket *net.UnixConn) (port uint32, err error) {
	var line []byte
	b := make([]byte, 1)
	for len(line) < maxConnectLine {
		if _, err := socket.Read(b); err != nil {
			return 0, fmt.Errorf("vsock: read connect line: %w", err)
		}
		if b[0] == '\n' {
			return parseConnect(string(line))
		}
		line = append(line, b[0])
	}
	return 0, errConnectLine
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
