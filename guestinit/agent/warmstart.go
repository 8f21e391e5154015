package agent

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/proc"
	"thaw/guestinit/warm"
)

// startWarm starts an interpreter and answers when it waits.
func (c *conn) startWarm(payload []byte) error {
	var req agentproto.WarmRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	res, err := c.s.startWarm(req)
	if err != nil {
		return c.sendError(err)
	}
	return c.send(agentproto.FrameOK, res)
}

func (s *Server) startWarm(req agentproto.WarmRequest) (agentproto.WarmResult, error) {
	argv, err := warm.Runtime(req.Runtime).Argv(s.warm.dir, req.Preload)
	if err != nil {
		return agentproto.WarmResult{}, &agentproto.Error{Code: agentproto.CodeBadRequest, Message: err.Error()}
	}
	if err := s.warm.install(); err != nil {
		return agentproto.WarmResult{}, err
	}
	s.SetHooks(s.warm)
	// Not to be frozen half warm.
	if err := s.freezer.gate.enter(); err != nil {
		return agentproto.WarmResult{}, err
	}
	defer s.freezer.gate.leave()
	began := time.Now()
	// With a standard input, which a job may want: one that does not has the
	// interpreter put /dev/null there. In the workspace, where cells run.
	e, err := s.launch(agentproto.ExecRequest{Argv: argv, Env: req.Env, Stdin: true, Persist: true}, true)
	if err != nil {
		return agentproto.WarmResult{}, err
	}
	it := &interpreter{s: s, e: e, conn: warm.NewConn(e.control)}
	said := new(discard)
	ready, err := it.await(req, said)
	if err != nil {
		e.abandon()
		<-e.finished
		return agentproto.WarmResult{}, &agentproto.Error{
			Code: agentproto.CodeInternal, Message: warm.Cut(fmt.Sprintf("%s did not get warm: %v; it said %q", req.Runtime, err, said.text()), 4096),
		}
	}
	it.state = warmFresh
	s.warm.add(it)
	e.adopt(terms{Grace: agentproto.DefaultGrace, waits: true})
	// The next exec wants a group, and no machine of the template should have to make it.
	s.cfg.Cgroups.Refill()
	go func() {
		<-e.finished
		s.warm.remove(it)
		it.keeper.linger()
	}()
	res := agentproto.WarmResult{
		ExecID: e.id, PID: int32(e.proc.PID), Version: ready.Version, Modules: int64(ready.Modules), Missing: ready.Missing,
		Took: time.Since(began), MemoryBytes: proc.Resident(e.proc.PID),
	}
	return res, nil
}

// await waits until the interpreter is ready. What it writes until then is no
// job's: some libraries greet.
func (it *interpreter) await(req agentproto.WarmRequest, out *discard) (ready warm.Answer, err error) {
	timeout := req.Timeout
	if timeout == 0 {
		timeout = agentproto.DefaultWarmTimeout
	}
	if ok, err := it.e.attach(newConn(it.s, out)); !ok || err != nil {
		return ready, fmt.Errorf("agent: attach to interpreter: %w", err)
	}
	ready, err = it.conn.Receive(time.Now().Add(timeout), func(a warm.Answer) bool { return a.Kind == warm.KindReady })
	if err == nil && ready.Runtime != req.Runtime {
		err = fmt.Errorf("agent: runtime is %q: %w", ready.Runtime, warm.ErrProtocol)
	}
	if err == nil {
		it.e.settle()
		it.e.link.leave()
		if ready.Keeper > 0 {
			it.keeper, err = newKeeper(it.e, ready.Keeper)
		}
	}
	return ready, err
}

// discard is the connection of an exec whose output nobody wants. It keeps
// the first of it.
type discard struct {
	net.Conn

	mu   sync.Mutex
	kept strings.Builder // protected by mu
}

const discardKeeps = 2 << 10

// Write takes whole frames, as conn writes them.
func (d *discard) Write(b []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for rest := b; len(rest) >= agentproto.HeaderSize; {
		n := int(binary.LittleEndian.Uint32(rest[4:]))
		t, payload := agentproto.FrameType(rest[0]), rest[agentproto.HeaderSize:][:n]
		if t == agentproto.FrameStdout || t == agentproto.FrameStderr {
			d.kept.Write(payload[:min(n, discardKeeps-min(d.kept.Len(), discardKeeps))])
		}
		rest = rest[agentproto.HeaderSize+n:]
	}
	return len(b), nil
}

func (d *discard) Close() error                     { return nil }
func (d *discard) SetWriteDeadline(time.Time) error { return nil }

func (d *discard) text() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept.String()
}
