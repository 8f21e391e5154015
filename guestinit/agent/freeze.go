package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/freemem"
	"thaw/guestinit/hugetext"
)

// Renewer makes the machine that of a generation (package generation).
type Renewer interface {
	Renew(agentproto.Generation) (agentproto.GenerationResult, error)
}

// Hooks are told when every process stands still, and of a generation when all of the
// machine has been renewed, before any process goes on. What they have to say to a process
// must be said without waiting for it: it is frozen. frozen is false for a generation of a
// machine that was not frozen, where processes run.
type Hooks interface {
	Frozen()
	Renew(g agentproto.Generation, frozen bool) error
}

// gate keeps starts of execs and freezes apart. A process that is born into a
// frozen group never gets to its execve, and the launcher that waits for it
// would keep every child from being collected. So a freeze waits for the starts
// under way, and while all is frozen starts are refused.
//
//	          freeze: starts are refused        none under way, all stand still
//	running ─────────────────────────▶ freezing ──────────────────────────▶ frozen
//	   ▲ ▲                                │                                   │
//	   │ └───────── deadline, failure ────┘                                   │
//	   └─────────────────── THAW; a generation was acknowledged ──────────────┘
type gate struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced when starting falls to 0; protected by mu
	starting int           // protected by mu
	shut     bool          // protected by mu
}

// enter begins the start of an exec, which leave ends.
func (g *gate) enter() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		return &agentproto.Error{Code: agentproto.CodeBusy, Message: "the machine is frozen"}
	}
	g.starting++
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.starting--; g.starting == 0 && g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// shutUntil refuses starts from now on and waits for those under way. If the
// deadline passes it opens again.
func (g *gate) shutUntil(deadline time.Time) error {
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	for {
		g.mu.Lock()
		g.shut = true
		if g.starting == 0 {
			g.mu.Unlock()
			return nil
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-t.C:
			g.open()
			return fmt.Errorf("agent: an exec is being started: %w", cgroup.ErrFreezeTimeout)
		}
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
}

// freezer is the state of the machine between FREEZE and THAW.
type freezer struct {
	mu     sync.Mutex // held during FREEZE, THAW and GENERATION
	gate   gate
	frozen bool   // protected by mu
	last   uint64 // generation; protected by mu
	hooks  Hooks  // protected by mu
}

// SetHooks sets what is told of generations.
func (s *Server) SetHooks(h Hooks) {
	s.freezer.mu.Lock()
	defer s.freezer.mu.Unlock()
	s.freezer.hooks = h
}

// state returns what Info tells.
func (f *freezer) state() (generation uint64, frozen bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, f.frozen
}

func (c *conn) freeze(payload []byte) error {
	var req agentproto.FreezeRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	res, err := c.s.freeze(req)
	if err != nil {
		if errors.Is(err, cgroup.ErrFreezeTimeout) {
			err = &agentproto.Error{Code: agentproto.CodeFreezeTimeout, Message: err.Error()}
		}
		return c.sendError(err)
	}
	return c.send(agentproto.FrameOK, res)
}

// freeze stops every exec. Once more on a frozen machine, it does the rest of
// the request.
func (s *Server) freeze(req agentproto.FreezeRequest) (agentproto.FreezeResult, error) {
	f := &s.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	var res agentproto.FreezeResult
	if req.Wait == 0 {
		req.Wait = agentproto.DefaultFreezeWait
	}
	start := time.Now()
	if !f.frozen {
		deadline := start.Add(req.Wait)
		if err := f.gate.shutUntil(deadline); err != nil {
			return res, err
		}
		if err := s.cfg.Cgroups.Freeze(deadline); err != nil {
			f.gate.open()
			return res, err
		}
		f.frozen = true
		if f.hooks != nil {
			f.hooks.Frozen()
		}
	}
	if req.ReportFree {
		// What is half taken apart in a template is in every machine of it, which
		// would go on with it.
		deadline := start.Add(req.Wait)
		if err := errors.Join(s.lingering.release(deadline), s.cfg.Cgroups.RemoveNow(deadline)); err != nil {
			return res, errors.Join(err, s.thawLocked())
		}
	}
	now := time.Now()
	res.Took, res.Execs = now.Sub(start), int64(s.execCount())
	if err := s.prepare(req, &res); err != nil {
		return res, errors.Join(err, s.thawLocked())
	}
	if req.DropCaches || req.ReportFree {
		res.Prepared = time.Since(now)
	}
	return res, nil
}

// prepare makes memory free for a template.
func (s *Server) prepare(req agentproto.FreezeRequest, res *agentproto.FreezeResult) (err error) {
	if req.DropCaches {
		err = freemem.Drop()
	}
	if req.ReportFree && err == nil {
		hugetext.Collapse(s.cfg.Log)
		res.FreeBytes, err = freemem.Report()
	}
	if err != nil {
		return fmt.Errorf("agent: prepare for a checkpoint: %w", err)
	}
	return nil
}

func (c *conn) thaw() error {
	f := &c.s.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := c.s.thawLocked(); err != nil {
		return c.sendError(err)
	}
	return c.send(agentproto.FrameOK, nil)
}

// thawLocked lets everything go on, if it is frozen. Preconditions: freezer.mu
// is held.
func (s *Server) thawLocked() error {
	if !s.freezer.frozen {
		return nil
	}
	if err := s.cfg.Cgroups.Thaw(); err != nil {
		return err
	}
	s.freezer.frozen = false
	s.freezer.gate.open()
	return nil
}
