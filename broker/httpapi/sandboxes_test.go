package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/catalogue"
	"thaw/broker/steps"
	"thaw/client"
)

// shelf is a fleet and a store at once: machines that echo cells, snapshots that are
// names.
type shelf struct {
	broken error // what an export ends with

	mu   sync.Mutex
	list []catalogue.Owned
	n    uint64
}

const templateID = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func newShelf() *shelf {
	return &shelf{list: []catalogue.Owned{{Snapshot: api.Snapshot{
		ID: templateID, Kind: api.KindTemplate, State: api.SnapshotDurable, Image: "python", MemoryMiB: 256, VCPUs: 1,
	}}}}
}

func (s *shelf) Classes() []broker.Class    { return []broker.Class{{MemoryMiB: 512, VCPUs: 1}} }
func (s *shelf) DiskBytes() int64           { return 64 << 20 }
func (s *shelf) Snapshots() catalogue.Store { return s }
func (s *shelf) Trackers() []api.Tracker    { return nil }
func (s *shelf) Shells() []api.ShellCount   { return []api.ShellCount{} }
func (s *shelf) Template(context.Context, string, broker.Class) (string, error) {
	return templateID, nil
}

func (s *shelf) Restore(_ context.Context, spec broker.RestoreSpec) (broker.WarmMachine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n++
	return &shelfMachine{echoMachine: &echoMachine{ended: make(chan struct{})}, shelf: s, spec: spec, record: api.Record{
		Op: "create", Machine: spec.ID, Snapshot: spec.Snapshot, Generation: s.n, Shell: api.ShellBound, TotalMS: 1.5,
	}}, nil
}

func (s *shelf) Fork(ctx context.Context, snapshot string, specs []broker.RestoreSpec) (made []broker.WarmMachine, err error) {
	for _, spec := range specs {
		spec.Snapshot = snapshot
		m, _ := s.Restore(ctx, spec)
		made = append(made, m)
	}
	return made, nil
}

func (s *shelf) List() []catalogue.Owned {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]catalogue.Owned(nil), s.list...)
}

func (s *shelf) Delete(_ context.Context, id string, _ bool) ([]string, error) {
	return nil, api.Errorf(api.CodeSnapshotInUse, "snapshot %s is in use", id)
}
func (s *shelf) Merge(context.Context, string) error { return nil }
func (s *shelf) Export(_ context.Context, id string, w io.Writer) error {
	if _, err := io.WriteString(w, strings.Repeat(id, 1000)); err != nil {
		return err
	}
	return s.broken
}

func (s *shelf) Import(_ context.Context, tenant string, r io.Reader) ([]string, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	s.add(tenant, string(b))
	return []string{string(b)}, nil
}

func (s *shelf) add(tenant, id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, catalogue.Owned{Tenant: tenant, Snapshot: api.Snapshot{
		ID: id, Kind: api.KindCheckpoint, State: api.SnapshotDurable, Parent: templateID, MemoryMiB: 512, VCPUs: 1,
	}})
}

type shelfMachine struct {
	*echoMachine
	shelf  *shelf
	spec   broker.RestoreSpec
	record api.Record
}

func (m *shelfMachine) Record() api.Record { return m.record }
func (m *shelfMachine) Code(ctx context.Context, c broker.Cell, stdout, stderr io.Writer) (broker.CellEnd, error) {
	fmt.Fprint(stdout, c.Source)
	fmt.Fprint(stderr, "\xff")
	if c.Source == "wait" {
		<-ctx.Done()
		return broker.CellEnd{Status: api.CellInterrupted}, nil
	}
	return broker.CellEnd{Status: api.CellOK, Value: "7"}, nil
}

func (m *shelfMachine) Changed(context.Context) (steps.Change, error) { return steps.Change{}, nil }
func (m *shelfMachine) Checkpoint(_ context.Context, spec broker.CheckpointSpec) (catalogue.Made, error) {
	return shelfCheckpoint{m}, nil
}

func (m *shelfMachine) Rollback(_ context.Context, id string) (api.Record, error) {
	m.record = api.Record{Op: "rollback", Snapshot: id, Generation: m.record.Generation + 1}
	return m.record, nil
}
func (m *shelfMachine) Pause(context.Context) error  { return nil }
func (m *shelfMachine) Resume(context.Context) error { return nil }

const checkpointID = "cccccccccccccccccccccccccccccccc"

type shelfCheckpoint struct{ m *shelfMachine }

func (c shelfCheckpoint) ID() string { return checkpointID }
func (c shelfCheckpoint) Record() api.Record {
	return api.Record{Op: "checkpoint", Snapshot: checkpointID, Parent: templateID, FreezeMS: 1}
}
func (c shelfCheckpoint) Durable(context.Context) error {
	c.m.shelf.add(c.m.spec.Tenant, checkpointID)
	return nil
}

func TestASandboxOverTheSocket(t *testing.T) {
	c := serve(t, echo{}, func(c *broker.Config) { c.Fleet = newShelf() })
	ctx := t.Context()
	s, err := c.CreateSandbox(ctx, api.SandboxRequest{Image: "python"})
	if err != nil || s.Record.Shell != api.ShellBound || s.State != api.SandboxRunning {
		t.Fatalf("%+v, %v", s, err)
	}
	var stdout, stderr strings.Builder
	w := client.Watcher{
		Stdout: func(b []byte) error { stdout.Write(b); return nil }, Stderr: func(b []byte) error { stderr.Write(b); return nil },
	}
	r, err := c.RunCode(ctx, s.ID, api.CodeRequest{Source: "héllo"}, w)
	if err != nil || r.Status != api.CellOK || r.Value != "7" || stdout.String() != "héllo" || stderr.String() != "\xff" || r.Stderr.Bytes != 1 {
		t.Errorf("%+v, %v: %q, %q", r, err, stdout.String(), stderr.String())
	}
	// The same for callers that want no stream.
	status, body := raw(t, c, "POST", "/v1/sandboxes/"+s.ID+"/code", `{"source":"x"}`)
	if status != 200 || !strings.Contains(body, `"stdout":{"encoding":"utf-8","data":"x"},"stderr":{"encoding":"base64","data":"/w=="},"result":{"status":"ok","value":"7"`) {
		t.Errorf("%d %s", status, body)
	}
	if r, err := c.RunExec(ctx, s.ID, api.ExecRequest{Argv: []string{"ls"}}, client.Watcher{}); err != nil || r.Exit == nil || r.Exit.Code != 5 {
		t.Errorf("%+v, %v", r, err)
	}
	saved, err := c.Checkpoint(ctx, s.ID, api.CheckpointRequest{Name: "good", Durable: true})
	if err != nil || saved.Snapshot.ID != checkpointID || saved.Record.FreezeMS != 1 {
		t.Errorf("%+v, %v", saved, err)
	}
	if back, err := c.Rollback(ctx, s.ID, checkpointID[:8]); err != nil || back.Generation != s.Generation+1 {
		t.Errorf("%+v, %v", back, err)
	}
	if f, err := c.Fork(ctx, s.ID, api.ForkRequest{Count: 2, Snapshot: checkpointID}); err != nil || len(f.Sandboxes) != 2 || f.Snapshot != checkpointID {
		t.Errorf("%+v, %v", f, err)
	}
	if p, err := c.Pause(ctx, s.ID); err != nil || p.State != api.SandboxPaused {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := c.Resume(ctx, s.ID); err != nil || p.State != api.SandboxRunning {
		t.Errorf("%+v, %v", p, err)
	}
	if l, err := c.Sandboxes(ctx); err != nil || len(l) != 3 {
		t.Errorf("%+v, %v", l, err)
	}
	if err := c.RemoveSandbox(ctx, s.ID); err != nil {
		t.Error(err)
	}
	if _, err := c.Sandbox(ctx, s.ID); !errors.Is(err, api.Errorf(api.CodeSandboxNotFound, "")) {
		t.Errorf("%v", err)
	}
}

// A caller that goes away ends its cell: the next one can run.
func TestACellEndsWithItsCaller(t *testing.T) {
	c := serve(t, echo{}, func(c *broker.Config) { c.Fleet = newShelf() })
	s, err := c.CreateSandbox(t.Context(), api.SandboxRequest{Image: "python"})
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	if _, err := c.RunCode(t.Context(), s.ID, api.CodeRequest{Source: "wait"}, client.Watcher{Stdout: func([]byte) error { return stop }}); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		_, err := c.RunCode(t.Context(), s.ID, api.CodeRequest{Source: "x"}, client.Watcher{})
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

func TestSnapshotsOverTheSocket(t *testing.T) {
	shelf := newShelf()
	c := serve(t, echo{}, func(c *broker.Config) { c.Fleet = shelf })
	ctx := t.Context()
	id := strings.Repeat("d", 32)
	if l, err := c.ImportSnapshot(ctx, strings.NewReader(id)); err != nil || len(l) != 1 || l[0].ID != id {
		t.Fatalf("%+v, %v", l, err)
	}
	if l, err := c.Snapshots(ctx); err != nil || len(l) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	if tree, err := c.SnapshotTree(ctx); err != nil || len(tree.Nodes) != 2 || tree.Nodes[1].Level != 1 {
		t.Errorf("%+v, %v", tree, err)
	}
	if s, err := c.Snapshot(ctx, "dddddd"); err != nil || s.ID != id {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := c.MergeSnapshot(ctx, id); err != nil || s.ID != id {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := c.RemoveSnapshot(ctx, id, true); !errors.Is(err, api.Errorf(api.CodeSnapshotInUse, "")) {
		t.Errorf("%v", err)
	}
	if r, err := c.CollectSnapshots(ctx, api.CollectRequest{DryRun: true}); err != nil || len(r.Snapshots) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	var out strings.Builder
	if err := c.ExportSnapshot(ctx, id, &out); err != nil || out.Len() != 32_000 {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	shelf.broken = errors.New("damaged")
	if err := c.ExportSnapshot(ctx, id, io.Discard); err == nil {
		t.Error("an archive that broke off looks whole")
	}
}

func TestSandboxFailuresHaveTheSameShape(t *testing.T) {
	c := serve(t, echo{}, func(c *broker.Config) { c.Fleet = newShelf() })
	off := serve(t, echo{})
	for name, tc := range map[string]struct {
		c                  *client.Client
		method, path, body string
		status             int
		code               api.Code
	}{
		"no sandbox":    {c, "POST", "/v1/sandboxes/x/code", `{"source":"1"}`, 404, api.CodeSandboxNotFound},
		"no snapshot":   {c, "GET", "/v1/snapshots/nothing", "", 404, api.CodeSnapshotNotFound},
		"template":      {c, "DELETE", "/v1/snapshots/" + templateID, "", 403, api.CodeForbidden},
		"unknown field": {c, "POST", "/v1/sandboxes", `{"image":"python","gpu":1}`, 422, api.CodeRequestInvalid},
		"forks":         {c, "POST", "/v1/sandboxes/x/fork", `{"count":1000}`, 422, api.CodeRequestInvalid},
		"name":          {c, "POST", "/v1/sandboxes/x/checkpoint", `{"name":"a b"}`, 422, api.CodeRequestInvalid},
		"tracker":       {c, "POST", "/v1/sandboxes/x/checkpoint", `{"tracker":"magic"}`, 422, api.CodeRequestInvalid},
		"off":           {off, "POST", "/v1/sandboxes", `{"image":"python"}`, 409, api.CodeTemplatesOff},
		"off, too":      {off, "GET", "/v1/snapshots", "", 409, api.CodeTemplatesOff},
	} {
		t.Run(name, func(t *testing.T) {
			status, body := raw(t, tc.c, tc.method, tc.path, tc.body)
			if status != tc.status || !strings.Contains(body, `"code":"`+string(tc.code)+`"`) || !strings.Contains(body, `"message"`) {
				t.Errorf("%d %s", status, body)
			}
		})
	}
}
