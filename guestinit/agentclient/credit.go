package agentclient

import (
	"fmt"
	"sync"

	"thaw/guestinit/agentproto"
)

// credit counts the bytes of standard input that may still be sent.
type credit struct {
	mu     sync.Mutex
	more   sync.Cond
	n      int  // protected by mu
	closed bool // protected by mu
}

func newCredit(n int) *credit {
	c := &credit{n: n}
	c.more.L = &c.mu
	return c
}

// take waits for credit and uses up to want of it; ok is false once the exec
// is over.
func (c *credit) take(want int) (n int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.n == 0 && !c.closed {
		c.more.Wait()
	}
	if c.closed {
		return 0, false
	}
	n = min(want, c.n)
	c.n -= n
	return n, true
}

// add gives credit back. From the guest: it cannot give more than the window.
func (c *credit) add(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 || c.n+n > agentproto.StdinWindow {
		return fmt.Errorf("agent gave stdin credit beyond the window: %w", agentproto.ErrProtocol)
	}
	c.n += n
	c.more.Signal()
	return nil
}

func (c *credit) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed
}

func (c *credit) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.more.Broadcast()
}
