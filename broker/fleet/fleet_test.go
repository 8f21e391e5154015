package fleet

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"thaw/broker/assets"
	"thaw/broker/berth"
	"thaw/broker/fold"
	"thaw/broker/journal"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/hostinfo"
	"thaw/internal/kvmtest"
	"thaw/snapshot/store"
)

// rig is a fleet with what it stands on.
type rig struct {
	*Fleet
	t       testing.TB
	journal *journal.Journal

	mu      sync.Mutex
	records []Record // protected by mu
}

// storeDir keeps templates for all tests of a run: building one takes seconds.
var storeDir string

func newRig(t testing.TB, change func(*Config)) *rig {
	t.Helper()
	return newRigIn(t, t.TempDir(), change)
}

// newRigIn is newRig with a folder for the journal, which may have machines in it.
func newRigIn(t testing.TB, dir string, change func(*Config)) *rig {
	t.Helper()
	kvmtest.Device(t)
	if storeDir == "" {
		storeDir = filepath.Join(binDir, "store")
	}
	set, err := assets.New(assets.Config{Kernel: "tuned", Init: filepath.Join(binDir, "thaw-init")})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := set.Image("python"); err != nil {
		kvmtest.Unavailable(t, "no image: %v", err)
	} else {
		f.Close()
	}
	r := &rig{t: t}
	if r.journal, err = journal.Open(dir); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(store.Options{Root: storeDir, Folder: fold.Disks{}})
	if err != nil {
		t.Fatal(err)
	}
	host := hostinfo.Detect()
	yard, err := berth.NewYard(r.journal, host.Cgroup)
	if err != nil {
		t.Fatal(err)
	}
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	cfg := Config{
		VMM: filepath.Join(binDir, "thaw-vmm"), Init: filepath.Join(binDir, "thaw-init"), Assets: set, Yard: yard,
		Store: s, Host: host, Dev: true, Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: level})),
		Observe: func(rec Record) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.records = append(r.records, rec)
		},
	}
	if change != nil {
		change(&cfg)
	}
	if r.Fleet, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Fleet.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		r.left(0)
		yard.Close()
		s.Close()
		r.journal.Close()
	})
	return r
}

// left checks how many machines and shells the journal knows.
func (r *rig) left(want int) {
	r.t.Helper()
	if n := r.journal.Machines(); n != want {
		r.t.Errorf("%d machines in the journal, want %d", n, want)
	}
}

// template returns the template of the python image.
func (r *rig) template(c Class) string {
	r.t.Helper()
	id, err := r.Template(r.t.Context(), "python", c)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

func (r *rig) restore(snapshot string) *Machine {
	r.t.Helper()
	m, err := r.Restore(r.t.Context(), RestoreSpec{Snapshot: snapshot})
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

// sh runs a line of shell in the machine.
func sh(t testing.TB, m *Machine, line string) string {
	t.Helper()
	out, code := try(t, m, line)
	if code != 0 {
		t.Fatalf("%s: code %d: %s", line, code, out)
	}
	return strings.TrimSpace(out)
}

func try(t testing.TB, m *Machine, line string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	p, err := m.Agent().Exec(t.Context(), agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c", line}}, agentclient.ExecIO{Stdout: &out, Stderr: &out})
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), int(s.Code)
}

// awaitShells waits until the pool has shells of a kind.
func (r *rig) awaitShells(kind Kind, n int) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		have := 0
		for _, c := range r.Shells() {
			if c.Kind == kind {
				have += c.Ready
			}
		}
		if have >= n {
			return
		}
	}
	r.t.Fatalf("no %d %s shells", n, kind)
}

var small = Class{MemoryMiB: 512, VCPUs: 1}

func TestRestore(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pool.Rehearsed = -1 })
	id := r.template(small)
	if again := r.template(small); again != id {
		t.Errorf("built twice: %s and %s", id, again)
	}
	r.awaitShells(Generic, 2)
	m := r.restore(id)
	if got := sh(t, m, "echo hello > /workspace/x; cat /workspace/x; hostname"); got != "hello\nthaw" {
		t.Errorf("got %q", got)
	}
	if rec := m.Record(); rec.Shell != Generic || rec.Generation == 0 {
		t.Errorf("record %+v", rec)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case <-m.Exited():
	default:
		t.Error("it still runs")
	}
}

func TestRehearsed(t *testing.T) {
	r := newRig(t, nil)
	id := r.template(small)
	r.awaitShells(Rehearsed, 1)
	m := r.restore(id)
	if rec := m.Record(); rec.Shell != Rehearsed {
		t.Errorf("record %+v", rec)
	}
	if got := sh(t, m, "echo hello > /workspace/x; cat /workspace/x"); got != "hello" {
		t.Errorf("got %q", got)
	}
}

// A bound shell serves its template as it stands, and checkpoints of it by a rollback
// before it has ever run; who asks for less gets less.
func TestBound(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pool.Bound = 1; c.Pool.Rehearsed = -1 })
	id := r.template(small)
	restore := func(snapshot string, best, want Kind) *Machine {
		t.Helper()
		r.awaitShells(Generic, 2)
		r.awaitShells(Bound, 1)
		m, err := r.Restore(t.Context(), RestoreSpec{Snapshot: snapshot, Shell: best})
		if err != nil {
			t.Fatal(err)
		}
		if rec := m.Record(); rec.Shell != want || rec.Generation == 0 {
			t.Errorf("record %+v", rec)
		}
		return m
	}
	m := restore(id, "", Bound)
	if got := sh(t, m, "echo hello > /workspace/x; cat /workspace/x"); got != "hello" {
		t.Errorf("got %q", got)
	}
	c, err := m.Checkpoint(t.Context(), CheckpointSpec{})
	if err != nil {
		t.Fatal(err)
	}
	for best, want := range map[Kind]Kind{"": Bound, Rehearsed: Bound, Bound: Bound, Generic: Generic} {
		m := restore(c.ID, best, want)
		if got := sh(t, m, "cat /workspace/x"); got != "hello" {
			t.Errorf("of a checkpoint, in a %s shell: %q", want, got)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.records, func(rec Record) bool { return rec.Op == OpBind && rec.Snapshot == id && rec.Total > 0 }) {
		t.Error("no record of a shell that was bound")
	}
}

func TestCheckpointAndRollback(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	sh(t, m, "echo one > /workspace/x")
	one, err := m.Checkpoint(t.Context(), CheckpointSpec{Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	sh(t, m, "echo two > /workspace/x; sync")
	two, err := m.Checkpoint(t.Context(), CheckpointSpec{Name: "two"})
	if err != nil {
		t.Fatal(err)
	}
	if got := sh(t, m, "cat /workspace/x"); got != "two" {
		t.Errorf("after the checkpoint: %q", got)
	}
	for _, c := range []struct {
		id, want string
	}{{one.ID, "one"}, {two.ID, "two"}, {one.ID, "one"}, {m.current.template, ""}, {two.ID, "two"}} {
		rec, err := m.Rollback(t.Context(), c.id)
		if err != nil {
			t.Fatal(err)
		}
		if got := sh(t, m, "cat /workspace/x 2>/dev/null || true"); got != c.want {
			t.Errorf("after rollback: %q, want %q", got, c.want)
		}
		if rec.Generation <= one.Record.Generation || m.Snapshot() != c.id {
			t.Errorf("record %+v", rec)
		}
		sh(t, m, "echo spoiled > /workspace/x; sync")
	}
	for _, c := range []*Checkpoint{one, two} {
		if stored, err := c.Durable(t.Context()); err != nil || stored.ID != c.ID {
			t.Errorf("not durable: %v", err)
		}
	}
	forks, err := r.Fork(t.Context(), two.ID, make([]RestoreSpec, 3))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range forks {
		if got := sh(t, f, "cat /workspace/x"); got != "two" {
			t.Errorf("fork: %q", got)
		}
	}
}
