package berth

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
)

// maxAnswer bounds the VMM's answer line to CONNECT, in bytes.
const maxAnswer = 32

// Conn is a connection to a port of the guest. The line that asks for the port goes
// out with the first bytes that are written, and its answer is taken off the first
// that are read: no round trip is waited for between.
//
//	ours    CONNECT 1024\n request …
//	theirs                                OK 7\n answer …
type Conn struct {
	net.Conn
	port uint32

	wmu  sync.Mutex
	said bool // protected by wmu; CONNECT is sent

	rmu   sync.Mutex
	heard bool   // protected by rmu; the answer line is read
	rest  []byte // protected by rmu; what was read beyond it
}

func newConn(c net.Conn, port uint32) *Conn { return &Conn{Conn: c, port: port} }

// Connect sends the line by itself and waits for its answer.
func (c *Conn) Connect() error {
	if _, err := c.Write(nil); err != nil {
		return err
	}
	c.rmu.Lock()
	defer c.rmu.Unlock()
	return c.hear()
}

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	if c.said {
		return c.Conn.Write(b)
	}
	line := make([]byte, 0, maxAnswer+len(b))
	line = append(line, "CONNECT "...)
	line = strconv.AppendUint(line, uint64(c.port), 10)
	line = append(line, '\n')
	head := len(line)
	n, err := c.Conn.Write(append(line, b...))
	c.said = true
	return max(0, n-head), err
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.rmu.Lock()
	defer c.rmu.Unlock()
	if err := c.hear(); err != nil {
		return 0, err
	}
	if len(c.rest) > 0 {
		n := copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.Conn.Read(b)
}

// hear reads the answer line, and what comes with it. Preconditions: rmu is held.
func (c *Conn) hear() error {
	if c.heard {
		return nil
	}
	buf := make([]byte, 0, 512)
	for {
		n, err := c.Conn.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if i := bytes.IndexByte(buf, '\n'); i >= 0 {
			if i >= maxAnswer || !bytes.HasPrefix(buf, []byte("OK ")) {
				return fmt.Errorf("berth: refused: %.40q", buf[:i])
			}
			c.heard, c.rest = true, buf[i+1:]
			return nil
		}
		if len(buf) >= maxAnswer {
			return errors.New("berth: answer to CONNECT is too long")
		}
		if err != nil {
			return fmt.Errorf("berth: no answer to CONNECT: %w", err)
		}
	}
}
