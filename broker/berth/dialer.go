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
