package vsock

import (
	"sync"
	"sync/atomic"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// guestError is what is wrong with a driver.
type guestError string

const (
	errShortBuffer guestError = "driver's buffer is shorter than a packet header"
	errShortPacket guestError = "driver's packet is shorter than its header says"
)

func (e guestError) Error() string { return "vsock: " + string(e) + ": " + queue.ErrGuest.Error() }
func (e guestError) Unwrap() error { return queue.ErrGuest }

// maxReplies is how many answers to the guest's packets can wait for room in
// the receive queue. With so many the transmit queue is left alone: a guest
// that sends without reading stops itself, and not the worker.
const maxReplies = 256

// packet is a packet to the guest without payload, and its connection, if it
// has one.
type packet struct {
	header header
	conn   *conn
}

// session is the device while it is active. It serves the transmit queue.
type session struct {
	device  *Device
	worker  *virtio.Worker
	events  *virtio.Worker // nil where nothing has to be told
	toGuest *toGuest
	tx      *queue.Queue
	irq     virtio.Interrupt
	chain   queue.Chain
	bufs    [][]byte
	replies chan packet
	kick    *virtio.Kick  // of the transmit queue
	quit    chan struct{} // closed by close
	tasks   sync.WaitGroup
	// ready is closed when the guest knows of no connection of before a restore.
	ready chan struct{}
	lost  uint32 // how many it knows of until then
	// resets is how many resets the guest has still to be sent.
	resets atomic.Int32

	mu       sync.Mutex
	conns    map[pair]*conn // protected by mu, as is the rest
	nextPort uint32
	dialling int // tasks for connections of the guest's, see mayDial
	closed   bool
}

// newSession starts a session. Preconditions: the device's mu is held.
func newSession(d *Device, a virtio.Activation) *session {
	s := &session{
		device: d, irq: a.Interrupt, tx: a.Queues[transmitQueue].Queue, kick: a.Queues[transmitQueue].Kick,
		toGuest: newToGuest(&a),
		replies: make(chan packet, maxReplies), quit: make(chan struct{}), ready: make(chan struct{}), lost: d.lost,
		conns: map[pair]*conn{}, nextPort: d.nextPort,
	}
	if s.lost == 0 {
		close(s.ready)
	} else {
		s.events = a.Start(eventQueue, &resetEvent{queue: a.Queues[eventQueue].Queue, interrupt: a.Interrupt, taken: s.ready})
	}
	s.tasks.Go(s.sendReplies)
	s.worker = a.Start(transmitQueue, s)
	return s
}

// pause returns when nothing touches guest memory.
func (s *session) pause() {
	if s.events != nil {
		s.events.Pause()
	}
	s.worker.Pause()
	s.toGuest.pause()
}

// resume ends a pause.
func (s *session) resume() {
	if s.events != nil {
		s.events.Resume()
	}
	s.toGuest.resume()
	s.worker.Resume()
}

// believed is how many connections the guest believes to be open, or to be
// opening, and the next port of the host's. Preconditions: paused, so that none
// ends by a packet of the guest's.
func (s *session) believed() (conns, nextPort uint32) {
	s.mu.Lock()
	n := uint32(len(s.conns))
	nextPort = s.nextPort
	s.mu.Unlock()
	n += uint32(s.resets.Load()) // counted before a connection is forgotten
	select {
	case <-s.ready:
	default:
		n += s.lost
	}
	return min(n, maxConns), nextPort
}

// close ends every connection and returns when nothing touches guest memory.
// It never waits for the host's processes.
func (s *session) close() {
	close(s.quit)
	if s.events != nil {
		s.events.Stop()
	}
	s.toGuest.close()
	s.worker.Stop()
	s.mu.Lock()
	s.closed = true
	conns := s.conns
	s.conns = map[pair]*conn{}
	s.mu.Unlock()
	for _, c := range conns {
		c.drop()
	}
	s.tasks.Wait()
}

// reply queues a packet without payload for the guest. It is called by the
// worker only, once for a packet of the guest's at most, and so never waits.
func (s *session) reply(h header, c *conn) {
	if h.op == opReset {
		s.resets.Add(1)
	}
	s.replies <- packet{h, c}
}

// room says whether there is room for one more reply.
func (s *session) room() bool { return len(s.replies) < maxReplies }

func (s *session) sendReplies() {
	for {
		select {
		case p := <-s.replies:
			if len(s.replies) >= maxReplies-1 {
				s.kick.Signal() // the worker may be waiting for room
			}
			s.toGuest.send(p.header, p.conn, nil)
			if p.header.op == opReset {
				s.resets.Add(-1)
			}
		case <-s.quit:
			return
		}
	}
}

// to returns the header of a packet to the guest.
func (s *session) to(p pair, op uint16) header {
	return header{
		srcCID: hostCID, dstCID: s.device.options.CID, srcPort: p.host, dstPort: p.guest,
		kind: typeStream, op: op, bufAlloc: bufferSize,
	}
}

// Waiting implements virtio.Handler.
func (s *session) Waiting() bool { return s.room() && s.tx.Available() }

// Enable implements virtio.Handler. Without room it asks for no kick:
// sendReplies gives one.
func (s *session) Enable() bool { return s.room() && s.tx.EnableNotify() }

// Disable implements virtio.Handler.
func (s *session) Disable() { s.tx.DisableNotify() }

// Serve implements virtio.Handler: it takes the guest's packets.
func (s *session) Serve() (worked bool, err error) {
	for s.room() {
		ok, err := s.tx.Pop(&s.chain)
		if err != nil {
			return worked, err
		}
		if !ok {
			break
		}
		worked = true
		if err := s.take(); err != nil {
			return worked, err
		}
		s.tx.Push(&s.chain, 0)
	}
	if s.tx.Publish() {
		s.irq.Used()
	}
	return worked, nil
}

// take handles the packet in s.chain. An error breaks the queue; what is
// wrong about one connection only resets that.
func (s *session) take() error {
	r := s.chain.Reader()
	var raw [headerSize]byte
	if n, _ := r.Read(raw[:]); n < headerSize {
		return errShortBuffer
	}
	h := parseHeader(&raw)
	if h.length > r.Len() {
		return errShortPacket
	}
	if h.srcCID != s.device.options.CID || h.dstCID != hostCID {
		s.device.metrics.Invalid.Add(1) // not for us: no answer (§5.10.6.6)
		return nil
	}
	p := pair{host: h.dstPort, guest: h.srcPort}
	if h.kind != typeStream {
		s.device.metrics.Invalid.Add(1)
		if h.op != opReset {
			s.reply(s.to(p, opReset), nil)
		}
		return nil
	}
	s.mu.Lock()
	c := s.conns[p]
	s.mu.Unlock()
	switch {
	case c != nil:
		payload := r.Split(h.length)
		s.bufs = payload.Slices(s.bufs[:0], h.length)
		c.fromGuest(h, s.bufs)
	case h.op == opRequest:
		s.guestConnects(p, h)
	case h.op != opReset:
		s.reply(s.to(p, opReset), nil)
	}
	return nil
}

// guestConnects answers a request of the guest's.
func (s *session) guestConnects(p pair, h header) {
	c := newConn(s, p)
	if s.device.options.Connect == nil || !s.mayDial() {
		s.device.metrics.Refused.Add(1)
		s.reply(s.to(p, opReset), nil)
		return
	}
	if !s.add(c) {
		s.dialled()
		s.device.metrics.Refused.Add(1)
		s.reply(s.to(p, opReset), nil)
		return
	}
	c.setCredit(h)
	s.tasks.Go(func() {
		defer s.dialled()
		// What the host has is for a guest that has taken the reset event.
		select {
		case <-s.ready:
		case <-s.quit:
			return
		}
		socket, err := s.dial(p.host)
		if err != nil {
			s.device.metrics.Refused.Add(1)
			c.reset()
			return
		}
		if c.open(socket) && s.toGuest.send(s.to(p, opResponse), c, nil) {
			c.pump()
		}
	})
}

// mayDial says whether one more task may serve a connection of the guest's;
// dialled must follow. A connection that was dropped does not count any more,
// but its task may wait for receive buffers that a hostile guest never gives.
func (s *session) mayDial() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dialling >= maxConns {
		return false
	}
	s.dialling++
	return true
}

// dialled undoes mayDial.
func (s *session) dialled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dialling--
}

// hostConnects asks the guest for a connection to port and returns it when
// the guest has accepted, or nil.
//
// early goes to the guest with the request, whose credit is not known yet: the standard has
// a sender wait for it. The driver of Linux takes
// a connection when it takes the request, with room for more than that, and finds the
// bytes when it looks for the next packet: an interrupt and a wait are spared. A guest that
// does not accept resets for either.
func (s *session) hostConnects(port uint32, early []byte) *conn {
	s.mu.Lock()
	var p pair
	for {
		p = pair{host: s.nextPort, guest: port}
		if s.nextPort++; s.nextPort < firstHostPort {
			s.nextPort = firstHostPort // wrapped
		}
		if s.conns[p] == nil {
			break
		}
	}
	s.mu.Unlock()
	c := newConn(s, p)
	if !s.add(c) {
		return nil
	}
	if !s.toGuest.send(s.to(p, opRequest), c, nil) || !c.sendEarly(early) || !c.waitAccepted() {
		c.reset() // the guest may accept it still
		return nil
	}
	return c
}

// add makes c known; false when there are too many, the pair is taken, or the
// session has ended.
func (s *session) add(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns || s.conns[c.pair] != nil {
		return false
	}
	s.conns[c.pair] = c
	s.device.metrics.Opened.Add(1)
	return true
}

func (s *session) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.pair] == c {
		delete(s.conns, c.pair)
	}
}
