package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"thaw/guestinit/agentproto"
)

// conn is one connection of the host's. serve reads it; any goroutine of its
// exchange may write to it.
type conn struct {
	s  *Server
	nc net.Conn
	r  *agentproto.Reader

	wmu  sync.Mutex
	wbuf []byte // protected by wmu

	mu   sync.Mutex
	exec *execution // the running one, or nil; protected by mu
}

func newConn(s *Server, nc net.Conn) *conn {
	// Most requests are one small frame: header and payload in one read.
	return &conn{s: s, nc: nc, r: agentproto.NewReader(bufio.NewReaderSize(nc, 4<<10))}
}

// serve handles frames until the connection ends, then ends its exec.
func (c *conn) serve() {
	defer c.s.guard(c)
	defer c.nc.Close()
	defer func() {
		if e := c.current(); e != nil {
			e.lost(c)
		}
	}()
	for {
		f, err := c.r.Next()
		if err == nil {
			err = c.handle(f)
		}
		if err == nil {
			continue
		}
		if !isDisconnect(err) {
			// Tell the host why, if it still listens. It may not read, so
			// not for long.
			_ = c.nc.SetWriteDeadline(time.Now().Add(time.Second))
			_ = c.sendError(err)
			c.s.cfg.Log("agent: close connection: %v", err)
		}
		return
	}
}

// isDisconnect tells a peer that went away from one that misbehaved. After a restore
// every connection that was open is found not to be connected.
func isDisconnect(err error) bool {
	for _, gone := range []error{syscall.ENOTCONN, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, gone) {
			return true
		}
	}
	var op *net.OpError
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrClosed) || errors.As(err, &op)
}

// handle deals with one frame. An error closes the connection; failures of a
// request are sent and return nil.
func (c *conn) handle(f agentproto.Frame) error {
	if e := c.current(); e != nil {
		return e.handle(c, f)
	}
	switch f.Type {
	case agentproto.FrameStdin, agentproto.FrameSignal, agentproto.FrameCancel, agentproto.FramePutData:
		// Sent before the host saw that its exchange had ended.
		return nil
	case agentproto.FramePing:
		var m agentproto.Ping
		if err := agentproto.Decode(f.Payload, &m); err != nil {
			return err
		}
		return c.send(agentproto.FrameOK, m)
	case agentproto.FrameInfo:
		return c.send(agentproto.FrameOK, c.s.Info())
	case agentproto.FrameUsage:
		u, err := c.s.usage()
		if err != nil {
			return c.sendError(err)
		}
		return c.send(agentproto.FrameOK, u)
	case agentproto.FrameExec:
		return c.startExec(f.Payload)
	case agentproto.FrameWarm:
		return c.startWarm(f.Payload)
	case agentproto.FrameRun:
		return c.runWarm(f.Payload)
	case agentproto.FrameCode:
		return c.runCode(f.Payload)
	case agentproto.FrameAttach:
		return c.attachExec(f.Payload)
	case agentproto.FramePut:
		return c.put(f.Payload)
	case agentproto.FrameGet:
		return c.get(f.Payload)
	case agentproto.FrameList:
		return c.list(f.Payload)
	case agentproto.FrameFreeze:
		return c.freeze(f.Payload)
	case agentproto.FrameThaw:
		return c.thaw()
	case agentproto.FrameGeneration:
		return c.generation(f.Payload)
	case agentproto.FrameShutdown:
		return c.shutdown()
	}
	return fmt.Errorf("agent: %s frame is no request: %w", f.Type, agentproto.ErrProtocol)
}

// decode reads a request; a bad one is refused but does not end the
// connection, since the frames around it are sound.
func (c *conn) decode(payload []byte, v any) (ok bool, err error) {
	if err := agentproto.Decode(payload, v); err != nil {
		return false, c.sendError(err)
	}
	return true, nil
}

func (c *conn) shutdown() error {
	c.s.stopExecs(endPatience)
	err := c.send(agentproto.FrameOK, nil)
	if c.s.cfg.Shutdown != nil {
		c.s.cfg.Shutdown()
	}
	return err
}

func (c *conn) current() *execution {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exec
}

func (c *conn) setCurrent(e *execution) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.exec = e
}

// send writes one message.
func (c *conn) send(t agentproto.FrameType, v any) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	return c.sendLocked(t, v)
}

// sendLocked is send for who holds wmu.
func (c *conn) sendLocked(t agentproto.FrameType, v any) error {
	b, err := agentproto.AppendMessage(c.wbuf[:0], t, v)
	if err != nil {
		return err
	}
	c.wbuf = b
	_, err = c.nc.Write(b)
	return err
}

func (c *conn) sendError(err error) error {
	return c.send(agentproto.FrameError, agentproto.FromErr(err))
}

// sendCredit grants n more bytes of standard input.
func (c *conn) sendCredit(n int) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.wbuf = agentproto.AppendCredit(c.wbuf[:0], uint32(n))
	_, err := c.nc.Write(c.wbuf)
	return err
}

// sendBuffer writes the first n payload bytes of b, whose header it fills in,
// with one system call. It blocks as long as the host does not read.
func (c *conn) sendBuffer(t agentproto.FrameType, flags uint8, b *buffer, n int) error {
	agentproto.PutHeader(b[:], t, flags, n)
	c.wmu.Lock()
	defer c.wmu.Unlock()
	_, err := c.nc.Write(b[:agentproto.HeaderSize+n])
	return err
}
