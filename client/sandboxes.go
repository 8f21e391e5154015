package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"thaw/api"
)

func sandboxURL(id, op string) string { return "/v1/sandboxes/" + url.PathEscape(id) + op }

// CreateSandbox makes a sandbox from an image or a snapshot, and returns once it runs.
func (c *Client) CreateSandbox(ctx context.Context, r api.SandboxRequest) (api.Sandbox, error) {
	return call[api.Sandbox](ctx, c, http.MethodPost, "/v1/sandboxes", r)
}

// Sandboxes lists the caller's sandboxes, newest first.
func (c *Client) Sandboxes(ctx context.Context) ([]api.Sandbox, error) {
	l, err := call[api.SandboxList](ctx, c, http.MethodGet, "/v1/sandboxes", nil)
	return l.Sandboxes, err
}

// Sandbox shows a sandbox.
func (c *Client) Sandbox(ctx context.Context, id string) (api.Sandbox, error) {
	return call[api.Sandbox](ctx, c, http.MethodGet, sandboxURL(id, ""), nil)
}

// RemoveSandbox destroys a sandbox, and returns once its machine is gone.
func (c *Client) RemoveSandbox(ctx context.Context, id string) error {
	_, err := call[struct{}](ctx, c, http.MethodDelete, sandboxURL(id, ""), nil)
	return err
}

// Checkpoint saves a sandbox, which runs on.
func (c *Client) Checkpoint(ctx context.Context, id string, r api.CheckpointRequest) (api.CheckpointAnswer, error) {
	return call[api.CheckpointAnswer](ctx, c, http.MethodPost, sandboxURL(id, "/checkpoint"), r)
}

// Rollback puts a sandbox back in place: to a snapshot, or to its last ("").
func (c *Client) Rollback(ctx context.Context, id, snapshot string) (api.Sandbox, error) {
	return call[api.Sandbox](ctx, c, http.MethodPost, sandboxURL(id, "/rollback"), api.RollbackRequest{Snapshot: snapshot})
}

// Fork makes sandboxes that start where one is: all that were asked for, or none.
func (c *Client) Fork(ctx context.Context, id string, r api.ForkRequest) (api.ForkAnswer, error) {
	return call[api.ForkAnswer](ctx, c, http.MethodPost, sandboxURL(id, "/fork"), r)
}

// Pause stops a sandbox's vCPUs.
func (c *Client) Pause(ctx context.Context, id string) (api.Sandbox, error) {
	return call[api.Sandbox](ctx, c, http.MethodPost, sandboxURL(id, "/pause"), nil)
}

// Resume lets a paused sandbox run on.
func (c *Client) Resume(ctx context.Context, id string) (api.Sandbox, error) {
	return call[api.Sandbox](ctx, c, http.MethodPost, sandboxURL(id, "/resume"), nil)
}

// RunCode runs a cell in a sandbox and passes its output to w. An error says that
// the cell was refused, or that the daemon was lost; how it ended is in the result.
func (c *Client) RunCode(ctx context.Context, id string, r api.CodeRequest, w Watcher) (api.RunResult, error) {
	return c.run(ctx, sandboxURL(id, "/code"), r, w)
}

// RunExec runs a program in a sandbox, as RunCode does a cell.
func (c *Client) RunExec(ctx context.Context, id string, r api.ExecRequest, w Watcher) (api.RunResult, error) {
	return c.run(ctx, sandboxURL(id, "/exec"), r, w)
}

// run follows one stream. It cannot be resumed: what runs ends with it.
func (c *Client) run(ctx context.Context, path string, request any, w Watcher) (api.RunResult, error) {
	b, err := json.Marshal(request)
	if err != nil {
		return api.RunResult{}, fmt.Errorf("client: encode request: %w", err)
	}
	resp, err := c.do(ctx, http.MethodPost, path, bytes.NewReader(b), http.Header{"Content-Type": {"application/json"}, "Accept": {"text/event-stream"}})
	if err != nil {
		return api.RunResult{}, err
	}
	defer resp.Body.Close()
	events := newSSEReader(resp.Body)
	for {
		e, err := events.next()
		switch {
		case err != nil && ctx.Err() != nil:
			return api.RunResult{}, context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return api.RunResult{}, errBroken
		case err != nil:
			return api.RunResult{}, fmt.Errorf("%w: %w", errBroken, err)
		case e.name == api.EventResult:
			return decode[api.RunResult](e)
		}
		if err := w.handle(e); err != nil {
			return api.RunResult{}, err
		}
	}
}
