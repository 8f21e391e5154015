package berth

import (
	"context"
	"net"
	"sync"
)

// Dialer gives out first, once, then new connections to a port of the guest.
func (b *Berth) Dialer(port uint32, first net.Conn) func(ctx context.Context) (net.Conn, error) {
	var once sync.Once
	return func(ctx context.Context) (c net.Conn, err error) {
		once.Do(func() { c = first })
		if c != nil {
			return c, nil
		}
		return b.Dial(ctx, port)
	}
}

// Starter is a connection whose first write starts something: the machine that is to
// read it.
type Starter struct {
	*Conn
	once  sync.Once
	begun bool // read when nobody writes any more
	start func()
}

// NewStarter returns c with start to be called after the first write.
func NewStarter(c *Conn, start func()) *Starter { return &Starter{Conn: c, start: start} }

// Write implements net.Conn.
func (c *Starter) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err == nil {
		c.once.Do(func() { c.begun = true; c.start() })
	}
	return n, err
}

// Wait waits for what start began. Preconditions: the first write has returned.
func (c *Starter) Wait(done <-chan struct{}) {
	if c.begun {
		<-done
	}
}
