package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"thaw/api"
)

// operation makes an operation with the failures that all share and some of its own.
func operation(id, method, path, summary string, errs ...int) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, Errors: append([]int{http.StatusForbidden, http.StatusNotFound}, errs...),
	}
}

// created marks an operation that makes something.
func created(o huma.Operation) huma.Operation {
	o.DefaultStatus = http.StatusCreated
	return o
}

// registerSandboxes adds what can be done with sandboxes.
func registerSandboxes(a huma.API, h handlers) {
	const one = "/v1/sandboxes/{id}"
	full := []int{http.StatusConflict, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage}
	huma.Register(a, created(operation("create-sandbox", http.MethodPost, "/v1/sandboxes", "Make a sandbox from an image or a snapshot", full...)), h.createSandbox)
	huma.Register(a, operation("list-sandboxes", http.MethodGet, "/v1/sandboxes", "List your sandboxes, newest first"), h.listSandboxes)
	huma.Register(a, operation("show-sandbox", http.MethodGet, one, "Show a sandbox"), h.showSandbox)
	huma.Register(a, operation("remove-sandbox", http.MethodDelete, one, "Destroy a sandbox; its snapshots stay"), h.removeSandbox)
	huma.Register(a, h.runOperation(a, "run-code", one+"/code", "Run a cell in a warm interpreter; cells share their variables"), h.code)
	huma.Register(a, h.runOperation(a, "run-exec", one+"/exec", "Run a program"), h.exec)
	huma.Register(a, created(operation("checkpoint-sandbox", http.MethodPost, one+"/checkpoint", "Save a sandbox, which runs on; a second call waits for the first", full...)), h.checkpoint)
	huma.Register(a, operation("rollback-sandbox", http.MethodPost, one+"/rollback", "Put a sandbox back in place; what runs in it ends", http.StatusConflict), h.rollback)
	huma.Register(a, created(operation("fork-sandbox", http.MethodPost, one+"/fork", "Make sandboxes that start where this one is; all of them or none", full...)), h.fork)
	huma.Register(a, operation("pause-sandbox", http.MethodPost, one+"/pause", "Stop a sandbox's vCPUs; its memory stays", http.StatusConflict), h.pause)
	huma.Register(a, operation("resume-sandbox", http.MethodPost, one+"/resume", "Let a paused sandbox run on", http.StatusConflict), h.resume)
}

// SandboxPath is exported because the framework sees only exported fields.
type SandboxPath struct {
	ID string `path:"id" doc:"Sandbox id" maxLength:"64"`
}

// answer calls do for the caller's tenant and wraps what it returns.
func answer[T any](ctx context.Context, do func(tenant string) (T, error)) (*body[T], error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	v, err := do(tenant)
	if err != nil {
		return nil, err
	}
	return &body[T]{v}, nil
}

type createSandboxInput struct{ Body api.SandboxRequest }

func (h handlers) createSandbox(ctx context.Context, in *createSandboxInput) (*body[api.Sandbox], error) {
	return answer(ctx, func(t string) (api.Sandbox, error) { return h.broker.CreateSandbox(ctx, t, in.Body) })
}

func (h handlers) listSandboxes(ctx context.Context, _ *struct{}) (*body[api.SandboxList], error) {
	return answer(ctx, func(t string) (api.SandboxList, error) { return api.SandboxList{Sandboxes: h.broker.Sandboxes(t)}, nil })
}

func (h handlers) showSandbox(ctx context.Context, in *SandboxPath) (*body[api.Sandbox], error) {
	return answer(ctx, func(t string) (api.Sandbox, error) { return h.broker.Sandbox(t, in.ID) })
}

func (h handlers) removeSandbox(ctx context.Context, in *SandboxPath) (*struct{}, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	return nil, h.broker.RemoveSandbox(ctx, tenant, in.ID)
}

type checkpointInput struct {
	SandboxPath
	Body api.CheckpointRequest
}

func (h handlers) checkpoint(ctx context.Context, in *checkpointInput) (*body[api.CheckpointAnswer], error) {
	return answer(ctx, func(t string) (api.CheckpointAnswer, error) { return h.broker.Checkpoint(ctx, t, in.ID, in.Body) })
}

type rollbackInput struct {
	SandboxPath
	Body api.RollbackRequest
}

func (h handlers) rollback(ctx context.Context, in *rollbackInput) (*body[api.Sandbox], error) {
	return answer(ctx, func(t string) (api.Sandbox, error) { return h.broker.Rollback(ctx, t, in.ID, in.Body) })
}

type forkInput struct {
	SandboxPath
	Body api.ForkRequest
}

func (h handlers) fork(ctx context.Context, in *forkInput) (*body[api.ForkAnswer], error) {
	return answer(ctx, func(t string) (api.ForkAnswer, error) { return h.broker.Fork(ctx, t, in.ID, in.Body) })
}

func (h handlers) pause(ctx context.Context, in *SandboxPath) (*body[api.Sandbox], error) {
	return answer(ctx, func(t string) (api.Sandbox, error) { return h.broker.Pause(ctx, t, in.ID) })
}

func (h handlers) resume(ctx context.Context, in *SandboxPath) (*body[api.Sandbox], error) {
	return answer(ctx, func(t string) (api.Sandbox, error) { return h.broker.Resume(ctx, t, in.ID) })
}
