package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"thaw/api"
	"thaw/broker/catalogue"
)

// registerSnapshots adds what can be done with snapshots.
func registerSnapshots(a huma.API, h handlers) {
	const one = "/v1/snapshots/{snapshot}"
	archive := map[string]*huma.MediaType{"application/octet-stream": {Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}}
	huma.Register(a, operation("list-snapshots", http.MethodGet, "/v1/snapshots", "List your snapshots, newest first", http.StatusConflict), h.listSnapshots)
	huma.Register(a, operation("snapshot-tree", http.MethodGet, "/v1/snapshots/tree", "Your snapshots and the templates below them, parents before children", http.StatusConflict), h.snapshotTree)
	huma.Register(a, operation("show-snapshot", http.MethodGet, one, "Show a snapshot", http.StatusConflict), h.showSnapshot)
	huma.Register(a, operation("remove-snapshot", http.MethodDelete, one, "Delete a snapshot", http.StatusConflict), h.removeSnapshot)
	huma.Register(a, operation("merge-snapshot", http.MethodPost, one+"/merge", "Make a checkpoint independent of the checkpoints below it",
		http.StatusConflict, http.StatusTooManyRequests, http.StatusInsufficientStorage), h.mergeSnapshot)
	export := operation("export-snapshot", http.MethodGet, one+"/export", "Fetch a snapshot, with all that it needs, as an archive", http.StatusConflict)
	export.Description = "An archive that breaks off is not whole: an import refuses it."
	export.Responses = map[string]*huma.Response{"200": {Description: "The archive", Content: archive}}
	huma.Register(a, export, h.exportSnapshot)
	imp := created(operation("import-snapshot", http.MethodPost, "/v1/snapshots", "Take an archive in; the body is its content",
		http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests, http.StatusInsufficientStorage))
	imp.RequestBody = &huma.RequestBody{Required: true, Content: archive}
	huma.Register(a, imp, h.importSnapshot)
	huma.Register(a, operation("collect-snapshots", http.MethodPost, "/v1/snapshots/gc",
		"Remove the least recently used of your checkpoints that nothing needs", http.StatusConflict), h.collectSnapshots)
}

// SnapshotPath is exported as SandboxPath is.
type SnapshotPath struct {
	Snapshot string `path:"snapshot" doc:"Id, at least 6 digits of it, or name" maxLength:"256"`
}

// viewed calls do with the caller's view and wraps what it returns.
func viewed[T any](ctx context.Context, h handlers, do func(v catalogue.View) (T, error)) (*body[T], error) {
	return answer(ctx, func(tenant string) (out T, err error) {
		v, err := h.broker.Snapshots(tenant)
		if err != nil {
			return out, err
		}
		return do(v)
	})
}

func (h handlers) listSnapshots(ctx context.Context, _ *struct{}) (*body[api.SnapshotList], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.SnapshotList, error) { return api.SnapshotList{Snapshots: v.List()}, nil })
}

func (h handlers) snapshotTree(ctx context.Context, _ *struct{}) (*body[api.SnapshotTree], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.SnapshotTree, error) { return v.Tree(), nil })
}

func (h handlers) showSnapshot(ctx context.Context, in *SnapshotPath) (*body[api.Snapshot], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.Snapshot, error) { return v.Show(in.Snapshot) })
}

type removeSnapshotInput struct {
	SnapshotPath
	Cascade bool `query:"cascade" doc:"Delete all that need it too"`
}

func (h handlers) removeSnapshot(ctx context.Context, in *removeSnapshotInput) (*body[api.Removed], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.Removed, error) { return v.Remove(ctx, in.Snapshot, in.Cascade) })
}

func (h handlers) mergeSnapshot(ctx context.Context, in *SnapshotPath) (*body[api.Snapshot], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.Snapshot, error) { return v.Merge(ctx, in.Snapshot) })
}

func (h handlers) exportSnapshot(ctx context.Context, in *SnapshotPath) (*huma.StreamResponse, error) {
	tenant, err := tenantOf(ctx)
	if err != nil {
		return nil, err
	}
	v, err := h.broker.Snapshots(tenant)
	if err != nil {
		return nil, err
	}
	write, s, err := v.Export(in.Snapshot)
	if err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(c huma.Context) {
		c.SetHeader("Content-Type", "application/octet-stream")
		c.SetHeader("Content-Disposition", "attachment")
		c.SetHeader("Thaw-Snapshot", s.ID)
		_, w := humago.Unwrap(c)
		out := newPatientWriter(w, h.stalls.download)
		if write(c.Context(), out) != nil {
			out.cut() // the status is sent: only a connection that breaks tells the caller
			return
		}
		out.done()
	}}, nil
}

func (h handlers) importSnapshot(ctx context.Context, in *rawInput) (*body[api.SnapshotList], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.SnapshotList, error) {
		return v.Import(ctx, &patientReader{in.body, in.conn, h.stalls.upload})
	})
}

type collectInput struct{ Body api.CollectRequest }

func (h handlers) collectSnapshots(ctx context.Context, in *collectInput) (*body[api.Removed], error) {
	return viewed(ctx, h, func(v catalogue.View) (api.Removed, error) { return v.Collect(ctx, in.Body) })
}
