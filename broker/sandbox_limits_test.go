package broker

import (
	"strings"
	"testing"

	"thaw/api"
	"thaw/broker/admission"
)

func TestSandboxRefusals(t *testing.T) {
	b := withFleet(t, newFakeFleet(), func(c *Config) { c.TenantSandboxes, c.TenantSnapshots = 3, 1 })
	for name, c := range map[string]struct {
		r    api.SandboxRequest
		code api.Code
	}{
		"nothing":             {api.SandboxRequest{}, api.CodeRequestInvalid},
		"both":                {api.SandboxRequest{Image: "python", Snapshot: "x"}, api.CodeRequestInvalid},
		"size of a snapshot":  {api.SandboxRequest{Snapshot: "x", VCPUs: 2}, api.CodeRequestInvalid},
		"unknown image":       {api.SandboxRequest{Image: "ruby"}, api.CodeUnknownProfile},
		"missing image":       {api.SandboxRequest{Image: "node"}, api.CodeAssetMissing},
		"unknown snapshot":    {api.SandboxRequest{Snapshot: "nothing"}, api.CodeSnapshotNotFound},
		"too large":           {api.SandboxRequest{Image: "python", MemoryMiB: 1 << 20}, api.CodeLimitImpossible},
		"unknown policy":      {api.SandboxRequest{Image: "python", Policy: "sometimes"}, api.CodeRequestInvalid},
		"too long":            {api.SandboxRequest{Image: "python", LifetimeSeconds: 86401}, api.CodeLimitImpossible},
		"overflowing a clock": {api.SandboxRequest{Image: "python", LifetimeSeconds: 1 << 62}, api.CodeLimitImpossible},
	} {
		if _, err := b.CreateSandbox(t.Context(), me, c.r); code(t, err) != c.code {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	if _, err := b.Fork(t.Context(), me, s.ID, api.ForkRequest{Count: 3}); code(t, err) != api.CodeQuotaExceeded {
		t.Errorf("more than the quota: %v", err)
	}
	if l := view(t, b, me).List(); len(l) != 0 {
		t.Errorf("refused forks have left %+v", l)
	}
	saved(t, b, s.ID, api.CheckpointRequest{})
	if _, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{}); code(t, err) != api.CodeQuotaExceeded {
		t.Errorf("a second snapshot of one: %v", err)
	}
	for _, labels := range []map[string]string{{"thaw.image": "x"}, {"": "x"}, {"a\x1b": "x"}, {"a": strings.Repeat("x", 300)}} {
		if _, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{Labels: labels}); code(t, err) != api.CodeRequestInvalid {
			t.Errorf("labels %q: %v", labels, err)
		}
	}
	for _, r := range []api.ExecRequest{{}, {Argv: []string{""}}, {Argv: []string{"a\x00"}}, {Argv: []string{"a"}, Env: map[string]string{"=": ""}}} {
		if _, err := b.OpenExec(me, s.ID, r); code(t, err) != api.CodeRequestInvalid {
			t.Errorf("exec %+v: %v", r, err)
		}
	}
	if _, err := b.OpenCode(me, s.ID, api.CodeRequest{Source: "\x00"}); code(t, err) != api.CodeRequestInvalid {
		t.Errorf("a zero in a cell: %v", err)
	}
	if _, r := runCode(t, b, s.ID, api.CodeRequest{Runtime: "node", Source: "x"}); r.Error == nil || r.Error.Code != api.CodeNoInterpreter {
		t.Errorf("node in a python: %+v", r)
	}
}

func runCode(t *testing.T, b *Broker, id string, r api.CodeRequest) (string, api.RunResult) {
	t.Helper()
	run, err := b.OpenCode(me, id, r)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	return out.String(), run.Do(t.Context(), func(_ string, v any) error { out.WriteString(v.(api.OutputEvent).Data); return nil })
}

func TestSandboxesCountInAdmission(t *testing.T) {
	b := withFleet(t, newFakeFleet(), func(c *Config) {
		c.Capacity = admission.Need{MemoryMiB: 2 * (512 + VMMMiB), DiskBytes: 8 << 30, CPUMilli: 8000, Machines: 8}
	})
	a := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	_, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Image: "python"})
	if code(t, err) != api.CodeQueueFull {
		t.Fatalf("a third one: %v", err)
	}
	if err := b.RemoveSandbox(t.Context(), me, a.ID); err != nil {
		t.Fatal(err)
	}
	sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	// All or none: the two that do not fit leave nothing behind.
	if _, err := b.Fork(t.Context(), me, b.Sandboxes(me)[0].ID, api.ForkRequest{Count: 2}); code(t, err) != api.CodeQueueFull {
		t.Errorf("forks beyond the host: %v", err)
	}
	if b.pool.Queued() != 0 || b.pool.Running() != 2 || len(b.making) != 0 {
		t.Errorf("%d queued, %d running, making %v", b.pool.Queued(), b.pool.Running(), b.making)
	}
}
