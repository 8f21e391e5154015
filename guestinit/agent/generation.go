package agent

import (
	"fmt"
	"time"

	"thaw/guestinit/agentproto"
)

// generation renews the machine, acknowledges, and only then thaws. Whatever
// fails leaves it frozen: the host destroys it.
func (c *conn) generation(payload []byte) error {
	var g agentproto.Generation
	if ok, err := c.decode(payload, &g); !ok {
		return err
	}
	f := &c.s.freezer
	f.mu.Lock()
	defer f.mu.Unlock()
	res, err := c.s.renew(g)
	if err != nil {
		return c.sendError(err)
	}
	if err := c.send(agentproto.FrameOK, res); err != nil {
		return err
	}
	f.last = g.Number
	return c.s.thawLocked()
}

// renew does every step. Preconditions: freezer.mu is held.
func (s *Server) renew(g agentproto.Generation) (agentproto.GenerationResult, error) {
	f := &s.freezer
	if g.Number <= f.last {
		return agentproto.GenerationResult{}, &agentproto.Error{
			Code: agentproto.CodeStale, Message: fmt.Sprintf("generation %d is not after %d", g.Number, f.last),
		}
	}
	if s.cfg.Renewer == nil {
		return agentproto.GenerationResult{}, &agentproto.Error{
			Code: agentproto.CodeUnsupported, Message: "this agent is not that of a machine",
		}
	}
	res, err := s.cfg.Renewer.Renew(g)
	if err != nil {
		return res, err
	}
	res.Frozen = f.frozen
	if f.hooks != nil {
		start := time.Now()
		if err := f.hooks.Renew(g, f.frozen); err != nil {
			return res, fmt.Errorf("agent: hooks of generation: %w", err)
		}
		res.Steps.Hooks = time.Since(start)
	}
	return res, nil
}
