package agent

import (
	"fmt"

	"thaw/guestinit/agentproto"
)

// Bounds on persistent execs that ended and whose end nobody has fetched.
const (
	// maxUnfetched are kept with the output that waits in their pipes.
	maxUnfetched = 32
	// maxRemembered are remembered by their status, fetched or not.
	maxRemembered = 256
)

// ended is what is remembered of a persistent exec.
type ended struct {
	started agentproto.Started
	status  agentproto.ExitStatus
}

// attachExec takes over the exec that the request names.
func (c *conn) attachExec(payload []byte) error {
	var req agentproto.AttachRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	e, end := c.s.persistent(req.ExecID)
	if e != nil {
		if ok, err := e.attach(c); ok {
			return err
		}
		// It ended since, and is remembered.
		<-e.finished
		_, end = c.s.persistent(req.ExecID)
	}
	if end == nil {
		return c.sendError(&agentproto.Error{
			Code: agentproto.CodeNotFound, Message: fmt.Sprintf("no persistent exec %d", req.ExecID),
		})
	}
	if err := c.send(agentproto.FrameStarted, end.started); err != nil {
		return err
	}
	return c.send(agentproto.FrameExit, end.status)
}

// attach gives the exec's streams to c, after STARTED with what went before.
// It reports false if the exec is over.
func (e *execution) attach(c *conn) (ok bool, err error) {
	// Nothing of the exec's may come before STARTED.
	c.wmu.Lock()
	defer c.wmu.Unlock()
	started := agentproto.Started{PID: int32(e.proc.PID), ExecID: e.id, Skipped: e.s.cfg.Cgroups.Skipped(), Cold: e.s.warm.coldReason(e.id)}
	c.setCurrent(e)
	ok = e.link.attach(c, func() {
		started.StdoutAt, started.StderrAt = e.stdout.sent, e.stderr.sent
		if e.stdin != nil {
			started.StdinAt, started.StdinOpen, started.StdinCredit = e.stdin.state()
		}
	})
	if !ok {
		c.setCurrent(nil)
		return false, nil
	}
	return true, c.sendLocked(agentproto.FrameStarted, started)
}

// deliver sends one frame, by send, to whoever is attached. For a persistent
// exec it waits for a connection, and sends the frame again on the next one if
// it fails on this. Then it calls sent with the link locked.
func (e *execution) deliver(send func(c *conn) error, sent func()) error {
	for {
		c, err := e.link.acquire()
		if err != nil {
			return err
		}
		err = send(c)
		e.link.release(c, err != nil, func() {
			if err == nil {
				sent()
			}
		})
		if err == nil {
			return nil
		}
		c.nc.Close()
		if !e.req.Persist {
			return err
		}
		e.s.trimUnfetched()
	}
}

// deliverExit sends the status. A persistent exec's is remembered first, and
// waits for a connection unless the exec was abandoned.
func (e *execution) deliverExit(status agentproto.ExitStatus) {
	if e.req.Persist {
		e.s.remember(e, status)
	}
	_ = e.deliver(func(c *conn) error {
		// From here on the host may send its next request.
		c.setCurrent(nil)
		return c.send(agentproto.FrameExit, status)
	}, func() { e.link.over = true })
}

// lost ends the use of a connection: an ordinary exec dies with it.
func (e *execution) lost(c *conn) {
	if e.req.Persist {
		e.link.detach(c)
		e.s.trimUnfetched()
		return
	}
	e.abandon()
	<-e.finished
}

// persistent finds a persistent exec that runs, or what is remembered of one.
func (s *Server) persistent(id uint64) (*execution, *ended) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for e := range s.execs {
		if e.id == id && e.req.Persist {
			return e, s.ended[id]
		}
	}
	return nil, s.ended[id]
}

// remember keeps the status of a persistent exec, and forgets the oldest.
// Preconditions: its outputs are done.
func (s *Server) remember(e *execution, status agentproto.ExitStatus) {
	m := &ended{status: status, started: agentproto.Started{
		PID: int32(e.proc.PID), ExecID: e.id, Skipped: s.cfg.Cgroups.Skipped(),
		StdoutAt: e.stdout.sent, StderrAt: e.stderr.sent,
	}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.endedOrder) == maxRemembered {
		delete(s.ended, s.endedOrder[0])
		s.endedOrder = append(s.endedOrder[:0], s.endedOrder[1:]...)
	}
	s.ended[e.id] = m
	s.endedOrder = append(s.endedOrder, e.id)
}

// trimUnfetched abandons the persistent execs that ended longest ago if more
// than maxUnfetched wait to be fetched.
func (s *Server) trimUnfetched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		var oldest *execution
		n := 0
		for e := range s.execs {
			if e.mainEnded == 0 || e.link.attached() || e.isAbandoned() {
				continue
			}
			n++
			if oldest == nil || e.mainEnded < oldest.mainEnded {
				oldest = e
			}
		}
		if n <= maxUnfetched {
			return
		}
		oldest.abandon()
	}
}

// noteMainEnded marks an exec as one that waits to be fetched if nobody is
// attached.
func (s *Server) noteMainEnded(e *execution) {
	s.mu.Lock()
	s.ends++
	e.mainEnded = s.ends
	s.mu.Unlock()
	s.trimUnfetched()
}
