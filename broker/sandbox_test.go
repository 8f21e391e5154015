package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thaw/api"
)

func withFleet(t *testing.T, f *fakeFleet, change ...func(*Config)) *Broker {
	t.Helper()
	return newBroker(t, f.launcher, append([]func(*Config){func(c *Config) {
		c.Fleet, c.SandboxWait = f, 10*time.Millisecond
		c.Capacity.DiskBytes = 64 << 30
		c.Capacity.MemoryMiB, c.Capacity.Machines = 16<<10, 16
	}}, change...)...)
}

func sandboxOf(t *testing.T, b *Broker, r api.SandboxRequest) api.Sandbox {
	t.Helper()
	s, err := b.CreateSandbox(t.Context(), me, r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// cell runs a cell and returns what it printed.
func cell(t *testing.T, b *Broker, id, source string) (string, api.RunResult) {
	t.Helper()
	r, err := b.OpenCode(me, id, api.CodeRequest{Source: source})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	result := r.Do(t.Context(), func(_ string, v any) error { out.WriteString(v.(api.OutputEvent).Data); return nil })
	return out.String(), result
}

func TestSandboxLife(t *testing.T) {
	f := newFakeFleet()
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	if s.State != api.SandboxRunning || s.MemoryMiB != 512 || s.VCPUs != 1 || s.Record.Shell != api.ShellRehearsed || s.Generation == 0 || s.Origin != s.Snapshot {
		t.Errorf("made %+v", s)
	}
	if out, r := cell(t, b, s.ID, "a"); out != "a" || r.Status != api.CellOK || r.Value != "42" || r.Stdout.Bytes != 1 {
		t.Errorf("%q, %+v", out, r)
	}
	saved, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{Name: "good", Durable: true})
	if err != nil || saved.Snapshot.State != api.SnapshotDurable || saved.Snapshot.Name != "good" || saved.Record.Op != "checkpoint" {
		t.Fatalf("%+v, %v", saved, err)
	}
	if out, r := cell(t, b, s.ID, "raise"); out != "araiseTraceback" || r.Status != api.CellError || r.ErrorType != "ValueError" {
		t.Errorf("%q, %+v", out, r)
	}
	back, err := b.Rollback(t.Context(), me, s.ID, api.RollbackRequest{})
	if err != nil || back.Snapshot != saved.Snapshot.ID || back.Generation <= s.Generation || back.Record.Op != "rollback" {
		t.Fatalf("%+v, %v", back, err)
	}
	if out, _ := cell(t, b, s.ID, "b"); out != "ab" {
		t.Errorf("after the rollback: %q", out)
	}
	forks, err := b.Fork(t.Context(), me, s.ID, api.ForkRequest{Count: 3})
	if err != nil || len(forks.Sandboxes) != 3 || forks.Checkpoint == nil {
		t.Fatalf("%+v, %v", forks, err)
	}
	for i, fork := range forks.Sandboxes {
		if out, _ := cell(t, b, fork.ID, fmt.Sprint(i)); out != "ab"+fmt.Sprint(i) {
			t.Errorf("fork %d: %q", i, out)
		}
	}
	if got := len(b.Sandboxes(me)); got != 4 {
		t.Errorf("%d sandboxes", got)
	}
	for _, s := range b.Sandboxes(me) {
		if err := b.RemoveSandbox(t.Context(), me, s.ID); err != nil {
			t.Error(err)
		}
	}
	if len(b.Sandboxes(me)) != 0 || b.pool.Running() != 0 {
		t.Errorf("left: %+v, %d machines", b.Sandboxes(me), b.pool.Running())
	}
	for _, m := range f.machines {
		if !m.closed {
			t.Errorf("machine %s is not closed", m.spec.ID)
		}
	}
}

// A measurement names the shell that is to serve it.
func TestSandboxOfAShell(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	for _, shell := range []api.Shell{api.ShellGeneric, api.ShellBound, api.ShellRehearsed} {
		if s := sandboxOf(t, b, api.SandboxRequest{Image: "python", Shell: shell}); s.Record.Shell != shell {
			t.Errorf("asked for %s: %+v", shell, s.Record)
		}
	}
	_, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Image: "python", Shell: api.ShellCold})
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeRequestInvalid {
		t.Errorf("cold: %v", err)
	}
	if i := b.Info(); len(i.Templates.Shells) != 1 || i.Templates.Shells[0].Wanted != 2 {
		t.Errorf("info %+v", i.Templates)
	}
}

func TestSandboxStates(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	if _, err := b.Resume(t.Context(), me, s.ID); code(t, err) != api.CodeSandboxState {
		t.Errorf("resumed while it runs: %v", err)
	}
	if p, err := b.Pause(t.Context(), me, s.ID); err != nil || p.State != api.SandboxPaused || p.Record.Op != "pause" {
		t.Fatalf("%+v, %v", p, err)
	}
	if _, err := b.OpenCode(me, s.ID, api.CodeRequest{Source: "x"}); code(t, err) != api.CodeSandboxState || !strings.Contains(api.AsError(err).Remedy, "resume") {
		t.Errorf("a cell while paused: %v", err)
	}
	if a, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{}); err != nil || a.Snapshot.ID == "" {
		t.Errorf("checkpoint while paused: %v", err)
	}
	if v, _ := b.Sandbox(me, s.ID); v.State != api.SandboxPaused {
		t.Errorf("a checkpoint made it %s", v.State)
	}
	if v, err := b.Resume(t.Context(), me, s.ID); err != nil || v.State != api.SandboxRunning {
		t.Errorf("%+v, %v", v, err)
	}
}

// Whatever belongs to another is not there, under every operation.
func TestSandboxesOfAnotherTenant(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	saved, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{Name: "mine", Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	const you = "uid:2"
	ctx, snap := t.Context(), saved.Snapshot.ID
	for name, do := range map[string]func() error{
		"show":       func() error { _, err := b.Sandbox(you, s.ID); return err },
		"remove":     func() error { return b.RemoveSandbox(ctx, you, s.ID) },
		"code":       func() error { _, err := b.OpenCode(you, s.ID, api.CodeRequest{}); return err },
		"exec":       func() error { _, err := b.OpenExec(you, s.ID, api.ExecRequest{Argv: []string{"x"}}); return err },
		"checkpoint": func() error { _, err := b.Checkpoint(ctx, you, s.ID, api.CheckpointRequest{}); return err },
		"rollback":   func() error { _, err := b.Rollback(ctx, you, s.ID, api.RollbackRequest{}); return err },
		"fork":       func() error { _, err := b.Fork(ctx, you, s.ID, api.ForkRequest{}); return err },
		"pause":      func() error { _, err := b.Pause(ctx, you, s.ID); return err },
		"resume":     func() error { _, err := b.Resume(ctx, you, s.ID); return err },
	} {
		if err := do(); code(t, err) != api.CodeSandboxNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, ref := range []string{snap, snap[:8] + snap[8:20], "mine"} {
		for name, do := range map[string]func() error{
			"show":   func() error { _, err := view(t, b, you).Show(ref); return err },
			"remove": func() error { _, err := view(t, b, you).Remove(ctx, ref, true); return err },
			"merge":  func() error { _, err := view(t, b, you).Merge(ctx, ref); return err },
			"export": func() error { _, _, err := view(t, b, you).Export(ref); return err },
			"create": func() error { _, err := b.CreateSandbox(ctx, you, api.SandboxRequest{Snapshot: ref}); return err },
		} {
			if err := do(); code(t, err) != api.CodeSnapshotNotFound {
				t.Errorf("%s of %s: %v", name, ref, err)
			}
		}
	}
	if l := view(t, b, you).List(); len(l) != 0 {
		t.Errorf("listed: %+v", l)
	}
	if tree := view(t, b, you).Tree(); len(tree.Nodes) != 0 {
		t.Errorf("in the tree: %+v", tree)
	}
	theirs, err := b.CreateSandbox(ctx, you, api.SandboxRequest{Image: "python"})
	if err != nil {
		t.Fatal(err)
	}
	// Their sandbox cannot be put into my snapshot either.
	if _, err := b.Rollback(ctx, you, theirs.ID, api.RollbackRequest{Snapshot: snap}); code(t, err) != api.CodeSnapshotNotFound {
		t.Errorf("rolled back to another's: %v", err)
	}
	if _, err := b.Fork(ctx, you, theirs.ID, api.ForkRequest{Snapshot: snap}); code(t, err) != api.CodeSnapshotNotFound {
		t.Errorf("forked another's: %v", err)
	}
}

func TestCellEndsWithItsMachine(t *testing.T) {
	f := newFakeFleet()
	b := withFleet(t, f)
	start := func(source string) (api.Sandbox, *fakeWarm, chan api.RunResult) {
		s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
		m := f.machines[len(f.machines)-1]
		m.hang = make(chan struct{})
		running, result := make(chan struct{}), make(chan api.RunResult, 1)
		r, err := b.OpenCode(me, s.ID, api.CodeRequest{Source: source})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			result <- r.Do(context.Background(), func(string, any) error { close(running); return nil })
		}()
		<-running
		return s, m, result
	}
	s, _, result := start("hang")
	if _, err := b.OpenCode(me, s.ID, api.CodeRequest{Source: "x"}); code(t, err) != api.CodeSandboxState {
		t.Errorf("two cells at a time: %v", err)
	}
	if _, err := b.Rollback(t.Context(), me, s.ID, api.RollbackRequest{}); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Error == nil || r.Error.Code != api.CodeRolledBack {
		t.Errorf("rolled back: %+v", r)
	}
	if out, r := cell(t, b, s.ID, "x"); out != "x" || r.Error != nil {
		t.Errorf("afterwards: %q, %+v", out, r)
	}
	s, _, result = start("hang")
	if err := b.RemoveSandbox(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	if r := <-result; r.Error == nil || r.Error.Code != api.CodeSandboxState {
		t.Errorf("removed: %+v", r)
	}
	s, m, result := start("hang")
	m.die(MachineExit{Reason: ExitPanic, Detail: "boom"})
	if r := <-result; r.Error == nil {
		t.Errorf("panicked: %+v", r)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		v, err := b.Sandbox(me, s.ID)
		if err != nil || time.Now().After(end) {
			t.Fatalf("%+v, %v", v, err)
		}
		if v.State == api.SandboxEnded {
			if v.Error == nil || v.Error.Code != api.CodeGuestPanic {
				t.Errorf("ended %+v", v.Error)
			}
			break
		}
	}
	if _, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{}); code(t, err) != api.CodeSandboxState {
		t.Errorf("saved when it had ended: %v", err)
	}
}

func TestCellInterrupted(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	r, err := b.OpenCode(me, s.ID, api.CodeRequest{Source: "hang"})
	if err != nil {
		t.Fatal(err)
	}
	// A caller that takes no output ends the cell.
	if got := r.Do(t.Context(), func(string, any) error { return errors.New("gone") }); got.Status != api.CellInterrupted {
		t.Errorf("%+v", got)
	}
	if out, _ := cell(t, b, s.ID, "x"); out != "hangx" {
		t.Errorf("the next cell: %q", out)
	}
}

// A guest that does not take its generation ends its sandbox, for this reason.
func TestFailedRollbackEndsTheSandbox(t *testing.T) {
	f := newFakeFleet()
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	f.rollbackErr = api.Errorf(api.CodeNotAcknowledged, "it did not")
	if _, err := b.Rollback(t.Context(), me, s.ID, api.RollbackRequest{}); code(t, err) != api.CodeNotAcknowledged {
		t.Errorf("%v", err)
	}
	got, err := b.findSandbox(me, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	<-got.ended
	if v := b.sandboxView(got); v.State != api.SandboxEnded || v.Error == nil || v.Error.Code != api.CodeNotAcknowledged {
		t.Errorf("%s: %+v", v.State, v.Error)
	}
}

func TestLifetime(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python", LifetimeSeconds: 1})
	got, _ := b.findSandbox(me, s.ID)
	select {
	case <-got.ended:
	case <-time.After(10 * time.Second):
		t.Fatal("it lives on")
	}
	if v := b.sandboxView(got); v.Error == nil || v.Error.Code != api.CodeSandboxExpired {
		t.Errorf("%+v", v)
	}
}

func TestNoFleet(t *testing.T) {
	b := newBroker(t, &fakeLauncher{})
	if _, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Image: "python"}); code(t, err) != api.CodeTemplatesOff {
		t.Errorf("%v", err)
	}
	if _, err := b.Snapshots(me); code(t, err) != api.CodeTemplatesOff {
		t.Errorf("%v", err)
	}
	if l := b.Sandboxes(me); len(l) != 0 {
		t.Errorf("%v", l)
	}
}

func TestExecInSandbox(t *testing.T) {
	f := newFakeFleet()
	f.launcher.script = func(p *fakeProcess) ExitStatus {
		fmt.Fprint(p.stdout, "out")
		if p.machine.exec.Argv[0] == "sleep" {
			return untilSignal(15)(p)
		}
		return exited(3)
	}
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	run := func(r api.ExecRequest) (string, api.RunResult) {
		x, err := b.OpenExec(me, s.ID, r)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		result := x.Do(t.Context(), func(_ string, v any) error { out.WriteString(v.(api.OutputEvent).Data); return nil })
		return out.String(), result
	}
	if out, r := run(api.ExecRequest{Argv: []string{"ls"}, Env: map[string]string{"A": "b"}}); out != "out" || r.Exit == nil || r.Exit.Code != 3 || r.Usage == nil {
		t.Errorf("%q, %+v", out, r)
	}
	if m := f.machines[0]; !strings.Contains(strings.Join(m.exec.Env, " "), "A=b") || m.exec.MemoryBytes <= 0 || m.exec.Runtime != "" {
		t.Errorf("%+v", m.exec)
	}
	if _, r := run(api.ExecRequest{Argv: []string{"sleep"}, TimeoutSeconds: 1}); r.Exit == nil || r.Exit.Signal != 15 || r.Error == nil || r.Error.Code != api.CodeTimedOut {
		t.Errorf("%+v", r)
	}
}

func TestPolicyCheckpoints(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python", Policy: "every:2"})
	var taken []bool
	for range 4 {
		_, r := cell(t, b, s.ID, "x")
		taken = append(taken, r.Checkpoint != nil)
	}
	if fmt.Sprint(taken) != "[false true false true]" || s.Policy != "every:2" {
		t.Errorf("taken %v under %s", taken, s.Policy)
	}
	// By how much a cell has changed: three bytes of the fake's memory.
	by := sandboxOf(t, b, api.SandboxRequest{Image: "python", Policy: "when-changed:3"})
	taken = nil
	for _, source := range []string{"x", "x", "x", "xxx", "x"} {
		_, r := cell(t, b, by.ID, source)
		taken = append(taken, r.Checkpoint != nil)
	}
	if fmt.Sprint(taken) != "[false false true true false]" {
		t.Errorf("when enough has changed: %v", taken)
	}
	// A checkpoint by hand, and a rollback, begin to count anew; forks inherit it.
	cell(t, b, s.ID, "x")
	saved(t, b, s.ID, api.CheckpointRequest{Durable: true})
	if _, r := cell(t, b, s.ID, "x"); r.Checkpoint != nil {
		t.Error("it counted over a checkpoint")
	}
	if f, err := b.Fork(t.Context(), me, s.ID, api.ForkRequest{}); err != nil || f.Sandboxes[0].Policy != "every:2" {
		t.Errorf("%+v, %v", f, err)
	}
}
