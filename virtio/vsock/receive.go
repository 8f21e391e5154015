package vsock

import (
	"sync"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// toGuest puts packets into the receive queue. It is shared by all
// connections; each call fills one chain, and waits for one when the driver
// has none at hand.
type toGuest struct {
	interrupt virtio.Interrupt
	worker    *virtio.Worker // wakes senders when the driver has added buffers
	failing   sync.WaitGroup // the driver is being told of a failure

	mu     sync.Mutex
	more   *sync.Cond   // of mu: there may be buffers, or the state changed
	queue  *queue.Queue // protected by mu, as is the rest
	chain  queue.Chain
	paused bool
	closed bool
}

func newToGuest(a *virtio.Activation) *toGuest {
	g := &toGuest{interrupt: a.Interrupt, queue: a.Queues[receiveQueue].Queue, paused: a.Paused}
	g.more = sync.NewCond(&g.mu)
	g.worker = a.Start(receiveQueue, buffers{g})
	return g
}

// buffers is the Handler of the receive queue: senders use the queue, it only
// wakes them.
type buffers struct{ *toGuest }

// Serve implements virtio.Handler.
func (b buffers) Serve() (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.more.Broadcast()
	return false, nil
}

// Waiting implements virtio.Handler.
func (b buffers) Waiting() bool { return false }

// Enable implements virtio.Handler: who waits has asked for the kick.
func (b buffers) Enable() bool { return false }

// Disable implements virtio.Handler.
func (b buffers) Disable() {}

// send delivers a packet, or several with the same header where the driver's
// buffers are smaller than the payload; their length is set here. It returns
// false when the queue is closed.
//
// The credit of the connection c, nil where the packet belongs to none, is put
// in at the last moment: the guest believes the packet that it sees last, so an
// older count that overtakes a newer one would take credit away for good.
func (g *toGuest) send(h header, c *conn, payload []byte) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for {
		if !g.pop() {
			return false
		}
		w := g.chain.Writer()
		if w.Len() < headerSize {
			g.fail(errShortBuffer)
			return false
		}
		n := min(len(payload), int(w.Len())-headerSize)
		h.length = uint32(n)
		if c != nil {
			h.fwdCnt = c.announce()
		}
		var b [headerSize]byte
		h.encode(&b)
		w.Write(b[:])
		w.Write(payload[:n])
		g.queue.Push(&g.chain, uint32(headerSize+n))
		payload = payload[n:]
		if len(payload) == 0 {
			g.publish()
			return true
		}
		if n == 0 {
			g.fail(errShortBuffer) // room for a header alone would never end
			return false
		}
	}
}

// pop takes the next chain and waits for one where there is none; false when
// the queue is closed. Preconditions: mu is held.
func (g *toGuest) pop() bool {
	for !g.closed {
		if !g.paused {
			ok, err := g.queue.Pop(&g.chain)
			if err != nil {
				g.fail(err)
				return false
			}
			if ok {
				return true
			}
			g.publish() // what was sent so far, or the driver has nothing to free
			if g.queue.EnableNotify() {
				continue
			}
		}
		g.more.Wait()
	}
	return false
}

// publish shows the driver what was sent. Preconditions: mu is held.
func (g *toGuest) publish() {
	if g.queue.Publish() {
		g.interrupt.Used()
	}
}

// fail gives up the queue. Preconditions: mu is held.
func (g *toGuest) fail(err error) {
	g.closed = true
	g.more.Broadcast()
	// NeedsReset takes the transport's lock, and the transport may be waiting
	// for us to close.
	g.failing.Go(func() { g.interrupt.NeedsReset(err) })
}

// pause returns when no sender touches the queue.
func (g *toGuest) pause() {
	g.worker.Pause()
	g.mu.Lock()
	g.paused = true
	g.mu.Unlock()
	g.failing.Wait()
}

func (g *toGuest) resume() {
	g.mu.Lock()
	g.paused = false
	g.more.Broadcast()
	g.mu.Unlock()
	g.worker.Resume()
}

// close makes all senders return; guest memory is not touched any more.
func (g *toGuest) close() {
	g.mu.Lock()
	g.closed = true
	g.more.Broadcast()
	g.mu.Unlock()
	g.worker.Stop()
	g.failing.Wait()
}
