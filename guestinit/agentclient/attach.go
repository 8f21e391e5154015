package agentclient

import (
	"context"
	"fmt"

	"thaw/guestinit/agentproto"
)

// Attach takes over the streams of a persistent exec whose connection was
// lost, or that another connection has: that one is closed. Started tells
// where in its streams it goes on. Without a Stdin the job's standard input
// stays as it is, open or not.
//
// It works once more after the exec's end was reported: an agent remembers
// the last ones, and their status, without their output.
func (c *Client) Attach(ctx context.Context, id uint64, stdio ExecIO) (*Process, error) {
	stdio.discard()
	cn, err := c.get(ctx)
	if err != nil {
		return nil, err
	}
	// The exec's own grace is not known here.
	p := &Process{c: c, cn: cn, what: fmt.Sprintf("attach to exec %d", id), grace: agentproto.MaxGrace, io: stdio}
	started, err := p.start(ctx, agentproto.FrameAttach, agentproto.AttachRequest{ExecID: id})
	if err != nil {
		return nil, err
	}
	if started.ExecID != id {
		cn.nc.Close()
		return nil, fmt.Errorf("agentclient: %s: agent attached exec %d: %w", p.what, started.ExecID, agentproto.ErrProtocol)
	}
	if !started.StdinOpen {
		p.io.Stdin = nil
	}
	p.run(ctx, started, int(started.StdinCredit))
	return p, nil
}

// Abandon closes the process's connection. A persistent exec goes on without
// it; any other is killed. It does nothing once the exec has ended.
func (p *Process) Abandon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended { // else the connection may serve another request by now
		p.cn.nc.Close()
	}
}

// Started is the agent's answer to the request.
func (p *Process) Started() agentproto.Started { return p.started }
