package agentclient

import (
	"context"
	"fmt"

	"thaw/guestinit/agentproto"
)

// Freeze stops every process of every exec, for a checkpoint. The error is
// agentproto.ErrFreezeTimeout if they did not stand still in time; then they go
// on. Until Thaw or SetGeneration no exec starts (agentproto.ErrBusy).
//
// With a ctx that ends first it is not known whether the machine is frozen.
func (c *Client) Freeze(ctx context.Context, req agentproto.FreezeRequest) (agentproto.FreezeResult, error) {
	var res agentproto.FreezeResult
	if err := req.Validate(); err != nil {
		return res, fmt.Errorf("agentclient: freeze: %w: %w", agentproto.ErrBadRequest, err)
	}
	err := c.exchange(ctx, agentproto.FrameFreeze, req, func(cn *conn) error { return cn.ok(&res) })
	return res, err
}

// Thaw lets a frozen machine go on that was not restored. On one that is not
// frozen it does nothing.
func (c *Client) Thaw(ctx context.Context) error {
	return c.exchange(ctx, agentproto.FrameThaw, nil, func(cn *conn) error { return cn.ok(nil) })
}

// SetGeneration gives a restored machine its generation and lets it go on. A
// machine that answers with an error, or not in time, must be destroyed: it may
// share secrets with another.
func (c *Client) SetGeneration(ctx context.Context, g agentproto.Generation) (agentproto.GenerationResult, error) {
	var res agentproto.GenerationResult
	if err := g.Validate(); err != nil {
		return res, fmt.Errorf("agentclient: generation: %w: %w", agentproto.ErrBadRequest, err)
	}
	err := c.exchange(ctx, agentproto.FrameGeneration, g, func(cn *conn) error { return cn.ok(&res) })
	if err == nil && res.Number != g.Number {
		return res, fmt.Errorf("agentclient: agent acknowledged generation %d, not %d: %w", res.Number, g.Number, agentproto.ErrProtocol)
	}
	return res, err
}
