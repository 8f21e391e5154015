// Package agentclient is the host's side of the guest protocol. It trusts
// nothing that comes from the guest: frames and messages are bounded and
// validated by agentproto, counts and sizes are checked against what was
// asked for, and a guest that breaks the protocol gets its connection closed
// and the caller an error wrapping agentproto.ErrProtocol.
//
// What the agent reports as a failure is an *agentproto.Error; compare with
// errors.Is and agentproto.ErrNotFound and its like.
package agentclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"thaw/guestinit/agentproto"
)

// Dial opens one connection to the agent.
type Dial func(ctx context.Context) (net.Conn, error)

// maxIdle is the number of connections kept for the next request.
const maxIdle = 4

// ErrClosed is returned after Close.
var ErrClosed = errors.New("agentclient: client is closed")

// Client talks to one guest. It keeps a few idle connections, so that a
// request costs no connection set-up. Safe for concurrent use.
type Client struct {
	dial Dial

	mu     sync.Mutex
	idle   []*conn // protected by mu
	closed bool    // protected by mu
}

// New returns a client. It dials when the first request comes.
func New(dial func(ctx context.Context) (net.Conn, error)) *Client { return &Client{dial: dial} }

// conn is one connection, used by one exchange at a time.
type conn struct {
	nc net.Conn
	r  *agentproto.Reader

	wmu  sync.Mutex
	wbuf []byte // protected by wmu
}

// get returns an idle connection or a new one.
func (c *Client) get(ctx context.Context) (*conn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	if n := len(c.idle); n > 0 {
		cn := c.idle[n-1]
		c.idle = c.idle[:n-1]
		c.mu.Unlock()
		return cn, nil
	}
	c.mu.Unlock()
	nc, err := c.dial(ctx)
	if err != nil {
		return nil, fmt.Errorf("agentclient: dial agent: %w", err)
	}
	return &conn{nc: nc, r: agentproto.NewReader(bufio.NewReaderSize(nc, 32<<10))}, nil
}

// put takes a connection back whose exchange ended in order.
func (c *Client) put(cn *conn) {
	c.mu.Lock()
	keep := !c.closed && len(c.idle) < maxIdle
	if keep {
		c.idle = append(c.idle, cn)
	}
	c.mu.Unlock()
	if !keep {
		cn.nc.Close()
	}
}

// CloseIdle drops the idle connections: after a restore of the guest none of
// them leads anywhere.
func (c *Client) CloseIdle() {
	c.mu.Lock()
	idle := c.idle
	c.idle = nil
	c.mu.Unlock()
	for _, cn := range idle {
		cn.nc.Close()
	}
}

// Close drops the idle connections and refuses new requests. Those that run
// go on to their end.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.CloseIdle()
	return nil
}

// send writes one message.
func (cn *conn) send(t agentproto.FrameType, v any) error {
	cn.wmu.Lock()
	defer cn.wmu.Unlock()
	b, err := agentproto.AppendMessage(cn.wbuf[:0], t, v)
	if err != nil {
		return err
	}
	cn.wbuf = b
	_, err = cn.nc.Write(b)
	return err
}

// sendData writes one frame of raw bytes.
func (cn *conn) sendData(t agentproto.FrameType, flags uint8, b []byte) error {
	cn.wmu.Lock()
	defer cn.wmu.Unlock()
	out, err := agentproto.AppendFrame(cn.wbuf[:0], t, flags, b)
	if err != nil {
		return err
	}
	cn.wbuf = out
	_, err = cn.nc.Write(out)
	return err
}

// exchange runs one request: it sends the request, calls receive for the
// frames that follow, and gives the connection back if all went well or the
// agent reported a failure. A context that ends closes the connection, which
// ends the request in the guest too.
func (c *Client) exchange(ctx context.Context, t agentproto.FrameType, req any, receive func(cn *conn) error) error {
	cn, err := c.get(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { cn.nc.Close() })
	err = cn.send(t, req)
	if err == nil {
		err = receive(cn)
	}
	if !stop() { // the connection is closed, or about to be
		if err == nil {
			return nil
		}
		return fmt.Errorf("agentclient: %s: %w", t, context.Cause(ctx))
	}
	var reported *agentproto.Error
	if err == nil || errors.As(err, &reported) {
		c.put(cn)
	} else {
		cn.nc.Close()
	}
	if err != nil {
		return fmt.Errorf("agentclient: %s: %w", t, err)
	}
	return nil
}

// next reads a frame and turns the agent's error into a Go error.
func (cn *conn) next() (agentproto.Frame, error) {
	f, err := cn.r.Next()
	if err != nil {
		return f, err
	}
	if f.Type == agentproto.FrameError {
		e := new(agentproto.Error)
		if err := agentproto.Decode(f.Payload, e); err != nil {
			return f, err
		}
		return f, e
	}
	return f, nil
}

// ok reads the frame that ends an exchange into v, which may be nil.
func (cn *conn) ok(v any) error {
	f, err := cn.next()
	if err != nil {
		return err
	}
	if f.Type != agentproto.FrameOK {
		return unexpected(f)
	}
	if v == nil {
		return nil
	}
	return agentproto.Decode(f.Payload, v)
}

func unexpected(f agentproto.Frame) error {
	return fmt.Errorf("%s frame was not expected: %w", f.Type, agentproto.ErrProtocol)
}

// Ping makes one round trip.
func (c *Client) Ping(ctx context.Context) error {
	want := agentproto.Ping{Nonce: uint64(time.Now().UnixNano())}
	var got agentproto.Ping
	err := c.exchange(ctx, agentproto.FramePing, want, func(cn *conn) error { return cn.ok(&got) })
	if err == nil && got != want {
		return fmt.Errorf("agentclient: ping came back changed: %w", agentproto.ErrProtocol)
	}
	return err
}

// Info describes the guest.
func (c *Client) Info(ctx context.Context) (agentproto.Info, error) {
	var info agentproto.Info
	err := c.exchange(ctx, agentproto.FrameInfo, nil, func(cn *conn) error { return cn.ok(&info) })
	return info, err
}

// Usage returns the machine's counters.
func (c *Client) Usage(ctx context.Context) (agentproto.Usage, error) {
	var u agentproto.Usage
	err := c.exchange(ctx, agentproto.FrameUsage, nil, func(cn *conn) error { return cn.ok(&u) })
	return u, err
}

// Shutdown kills every exec and ends the machine. It returns when the agent
// has agreed; the machine ends a moment later.
func (c *Client) Shutdown(ctx context.Context) error {
	err := c.exchange(ctx, agentproto.FrameShutdown, nil, func(cn *conn) error { return cn.ok(nil) })
	if err == nil {
		c.CloseIdle()
	}
	return err
}
