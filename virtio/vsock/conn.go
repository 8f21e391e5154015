package vsock

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// acceptTimeout is how long a guest may take to answer a connection request.
const acceptTimeout = 10 * time.Second

// state of a connection:
//
//	host connects: opening ──guest's RESPONSE──▶ accepted ──┐
//	guest connects: opening ──daemon's socket───────────────┴▶ open ──▶ closed
//
// A reset of either side, a violation, or an error of the socket closes it at
// any time.
type state int

const (
	opening state = iota
	accepted
	open
	closed
)

// conn is one stream connection. The worker brings the guest's packets; a
// reader and a writer goroutine move bytes from and to the host's socket.
type conn struct {
	s    *session
	pair pair

	mu      sync.Mutex
	changed *sync.Cond // of mu
	state   state      // protected by mu, as is the rest
	socket  *net.UnixConn
	raw     rawWriter

	// From the guest: bytes received, handed on, and what it was last told of
	// that. All three wrap.
	received, forwarded, announced uint32
	announcing                     bool   // a packet that tells it is on its way
	pending, spare                 []byte // waits for the writer; the writer's
	writing                        bool   // the writer holds spare
	guestDone                      bool   // the guest sends no more

	// To the guest: bytes sent, what it told of its buffer and its progress.
	sent, peerAlloc, peerForwarded uint32
	guestDeaf                      bool // the guest receives no more
}

// rawWriter is the socket for writes that do not wait.
type rawWriter interface {
	Write(f func(fd uintptr) (done bool)) error
}

func newConn(s *session, p pair) *conn {
	c := &conn{s: s, pair: p}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// announce returns how much was handed on, for a packet that goes to the guest
// now. Preconditions: the receive queue is held, so that counts reach the guest
// in order.
func (c *conn) announce() uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.announced, c.announcing = c.forwarded, false
	return c.forwarded
}

// send sends a packet with an operation, flags and payload to the guest. Not
// for the worker, which must not wait for the receive queue.
func (c *conn) send(op uint16, flags uint32, payload []byte) bool {
	h := c.s.to(c.pair, op)
	h.flags = flags
	return c.s.toGuest.send(h, c, payload)
}

// sendData sends bytes of the stream to the guest.
func (c *conn) sendData(b []byte) bool {
	c.mu.Lock()
	c.sent += uint32(len(b))
	c.mu.Unlock()
	ok := c.send(opData, 0, b)
	if ok {
		c.s.device.metrics.ToGuest.Add(uint64(len(b)))
	}
	return ok
}

// sendEarly is sendData for what may be nothing.
func (c *conn) sendEarly(b []byte) bool { return len(b) == 0 || c.sendData(b) }

func (c *conn) setCredit(h header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peerAlloc, c.peerForwarded = h.bufAlloc, h.fwdCnt
}

// waitAccepted waits for the guest's answer to a request.
func (c *conn) waitAccepted() bool {
	late := false // protected by mu
	timer := time.AfterFunc(acceptTimeout, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		late = true
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.state == opening && !late {
		c.changed.Wait()
	}
	return c.state == accepted
}

// open gives the connection its socket; false, and the socket closed, when it
// was closed meanwhile.
func (c *conn) open(socket *net.UnixConn) bool {
	raw, err := socket.SyscallConn()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil || c.state == closed {
		socket.Close()
		return false
	}
	c.socket, c.raw, c.state = socket, raw, open
	return true
}

// pump moves bytes until the connection ends. Preconditions: open.
func (c *conn) pump() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	c.read()
	writer.Wait()
}

// firstRead is how many bytes a connection takes at a time until more than that wait: most
// carry short messages only, and are open as long as their machine.
const firstRead = 4 << 10

// read moves bytes from the host's socket to the guest.
func (c *conn) read() {
	buf := make([]byte, firstRead)
	for {
		credit := c.waitCredit()
		if credit == 0 {
			return
		}
		n, err := c.socket.Read(buf[:min(credit, uint32(len(buf)))])
		if n > 0 && !c.sendData(buf[:n]) {
			return
		}
		if n == len(buf) && n < maxPayload {
			buf = make([]byte, min(4*n, maxPayload))
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			c.send(opShutdown, shutdownSend, nil)
			return
		default:
			c.reset()
			return
		}
	}
}

// waitCredit returns how much the guest can take, and waits while that is
// nothing; zero when there is nothing more to send.
func (c *conn) waitCredit() uint32 {
	asked := false
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.state == open && !c.guestDeaf {
		// The guest's numbers may be nonsense: a negative room is none.
		used := c.sent - c.peerForwarded
		if used < c.peerAlloc {
			return c.peerAlloc - used
		}
		if !asked {
			asked = true
			c.mu.Unlock()
			c.send(opCreditRequest, 0, nil)
			c.mu.Lock()
			continue
		}
		c.changed.Wait()
	}
	return 0
}

// write moves bytes that did not fit into the host's socket at once, and ends
// the connection when both sides are done.
func (c *conn) write() {
	for {
		c.mu.Lock()
		for c.state == open && len(c.pending) == 0 && !c.guestDone {
			c.changed.Wait()
		}
		if c.state != open {
			c.mu.Unlock()
			return
		}
		if len(c.pending) == 0 {
			deaf := c.guestDeaf
			c.mu.Unlock()
			if deaf {
				c.reset() // the answer to a full shutdown (§5.10.6.6.1)
				return
			}
			c.socket.CloseWrite()
			c.waitDeaf()
			c.reset()
			return
		}
		c.pending, c.spare, c.writing = c.spare[:0], c.pending, true
		buf := c.spare
		c.mu.Unlock()
		_, err := c.socket.Write(buf)
		c.mu.Lock()
		c.writing = false
		c.forwarded += uint32(len(buf))
		due := c.creditDue()
		c.mu.Unlock()
		if err != nil {
			c.reset()
			return
		}
		c.s.device.metrics.FromGuest.Add(uint64(len(buf)))
		if due {
			c.send(opCreditUpdate, 0, nil)
		}
	}
}

// waitDeaf waits until the guest receives no more, or the connection ends.
func (c *conn) waitDeaf() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.state == open && !c.guestDeaf {
		c.changed.Wait()
	}
}

// creditDue says whether the guest, as far as it knows, has used up half of
// its credit, and should be told of more now; it says so once. Preconditions:
// mu is held.
func (c *conn) creditDue() bool {
	if c.announcing || c.received-c.announced <= bufferSize/2 || c.forwarded == c.announced {
		return false
	}
	c.announcing = true
	return true
}

// fromGuest handles a packet of the guest's, on the worker.
func (c *conn) fromGuest(h header, payload [][]byte) {
	c.setCredit(h)
	ok, answer := true, uint16(0)
	c.mu.Lock()
	switch h.op {
	case opResponse:
		if ok = c.state == opening && c.socket == nil && c.pair.host >= firstHostPort; ok {
			c.state = accepted
		}
	case opData:
		ok, answer = c.data(payload, h.length)
	case opShutdown:
		c.guestDone = c.guestDone || h.flags&shutdownSend != 0
		c.guestDeaf = c.guestDeaf || h.flags&shutdownReceive != 0
	case opCreditRequest:
		answer = opCreditUpdate
	case opCreditUpdate:
	case opReset:
		c.mu.Unlock()
		c.drop()
		return
	default:
		ok = false
	}
	c.changed.Broadcast()
	c.mu.Unlock()
	switch {
	case !ok:
		if c.drop() {
			c.s.device.metrics.Reset.Add(1)
			c.s.reply(c.s.to(c.pair, opReset), nil)
		}
	case answer != 0:
		c.s.reply(c.s.to(c.pair, answer), c)
	}
}

// data takes n bytes of payload. It returns false for a guest that sends what
// it must not, and the operation of an answer that is due. Preconditions: mu
// is held.
func (c *conn) data(payload [][]byte, n uint32) (ok bool, answer uint16) {
	if c.state < accepted || c.state == closed || c.guestDone || n > bufferSize-(c.received-c.forwarded) {
		return false, 0
	}
	c.received += n
	if c.state == open && len(c.pending) == 0 && !c.writing {
		// Straight from guest memory while the host's process keeps up.
		done := c.writeNow(payload)
		c.forwarded += uint32(done)
		c.s.device.metrics.FromGuest.Add(uint64(done))
		for done > 0 {
			k := min(done, len(payload[0]))
			if payload[0] = payload[0][k:]; len(payload[0]) == 0 {
				payload = payload[1:]
			}
			done -= k
		}
	}
	for _, b := range payload {
		c.pending = append(c.pending, b...)
	}
	if c.creditDue() {
		answer = opCreditUpdate
	}
	return true, answer
}

// writeNow writes what the socket takes without waiting. An error is the
// writer's to find.
func (c *conn) writeNow(payload [][]byte) (n int) {
	if len(payload) == 0 {
		return 0
	}
	c.raw.Write(func(fd uintptr) bool {
		n, _ = unix.Writev(int(fd), payload)
		return true
	})
	return max(n, 0)
}

// drop closes the connection without a word to the guest; false when it was
// closed already.
func (c *conn) drop() bool {
	c.mu.Lock()
	was := c.state
	c.state = closed
	c.changed.Broadcast()
	socket := c.socket
	c.mu.Unlock()
	if was == closed {
		return false
	}
	if socket != nil {
		socket.Close()
	}
	c.s.remove(c)
	return true
}

// reset closes the connection and tells the guest. Not for the worker, which
// must not wait for the receive queue.
func (c *conn) reset() {
	c.s.resets.Add(1)
	defer c.s.resets.Add(-1)
	if c.drop() {
		c.s.device.metrics.Reset.Add(1)
		c.s.toGuest.send(c.s.to(c.pair, opReset), nil, nil)
	}
}
