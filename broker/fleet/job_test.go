package fleet

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"thaw/broker/fleet/play"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
)

// A shell for a job has the pages ready that a job writes, and is the template all the same.
func TestShellForAJob(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pool.Rehearsed, c.Pool.Bound = -1, -1 })
	id := r.template(small)
	rehearsed, err := r.rehearse(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	r.discard(rehearsed)
	h, err := r.images.get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.release()
	ready := map[string]int{}
	for _, job := range []string{"", "python"} {
		s := r.take(h.image, Generic)
		s.job = job
		if _, err := s.become(t.Context(), r.Fleet, h.image, nil); err != nil {
			t.Fatal(err)
		}
		differ := differing(t, s, h.image)
		if also := written(saved(t, s, h.image)); !slices.Equal(differ, also) {
			t.Errorf("for job %q: pages %#x of the memory differ, want those that every restore writes: %#x", job, differ, also)
		}
		ready[job] = ownKiB(t, s.proc.PID())
	}
	if more := ready["python"] - ready[""]; more < 1024 {
		t.Errorf("shells have %v KiB of their own: one for a job has only %d more", ready, more)
	}
	m, err := r.Restore(t.Context(), RestoreSpec{Snapshot: id, Job: "python"})
	if err != nil {
		t.Fatal(err)
	}
	env, err := r.cfg.Assets.Env("python")
	if err != nil {
		t.Fatal(err)
	}
	warm, _ := m.Warm("python")
	if err := play.LeastJob(t.Context(), m.Agent(), "python", warm, env); err != nil {
		t.Error(err)
	}
}

// The end of a job tells whether it has left outputs, in a directory that is there when it begins.
func TestJobTellsOfOutputs(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pool.Rehearsed, c.Pool.Bound = -1, -1 })
	id := r.template(small)
	for _, c := range []struct {
		dir, program string
		none         bool
	}{
		{"out", "pass", true},
		{"out", "open('out/x', 'w').close()", false},
		{"out", "import os; os.rmdir('out')", false},
		{"new/out", "import os; assert os.listdir('new/out') == []", true},
		{"new/out", "open('new/out/.x', 'w').close()", false},
		{"", "pass", false},
	} {
		m := r.restore(id)
		warm, _ := m.Warm("python")
		if err := m.Agent().PutFile(t.Context(), "main.py", 0o644, int64(len(c.program)), strings.NewReader(c.program)); err != nil {
			t.Fatal(err)
		}
		p, err := m.Agent().Run(t.Context(), agentproto.RunRequest{ExecID: warm, Argv: []string{"python3", "main.py"}, Outputs: c.dir}, agentclient.ExecIO{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.Wait()
		if err != nil || s.Code != 0 || s.NoOutputs != c.none {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
		if err := m.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// ownKiB is how much memory a process has for itself.
func ownKiB(t *testing.T, pid int) (kib int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "Anonymous: %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatalf("no private memory in %s", b)
	return 0
}
