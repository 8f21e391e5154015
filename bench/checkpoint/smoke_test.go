package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"thaw/bench/report"
	"thaw/internal/kvmtest"
	"thaw/rootfs"
)

// programs builds what the bench runs.
func programs(t *testing.T) string {
	t.Helper()
	kvmtest.Device(t)
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "thawd needs root")
	}
	for _, image := range []string{imagePython, imageNode} {
		if _, err := rootfs.Build(t.Context(), image, t.Output()); err != nil {
			kvmtest.Unavailable(t, "no image: %v", err)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"thawd", "thaw-vmm", "thaw-init"} {
		c := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(dir, name), "./cmd/"+name)
		c.Dir, c.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
	}
	return dir
}

// Every metric can be measured, with two samples each.
func TestSmoke(t *testing.T) {
	dir, raw := programs(t), t.TempDir()
	seen := map[string]bool{}
	complete, err := Run(t.Context(), Config{Bin: dir, N: 2, Quick: true, RawDir: raw, Progress: t.Output()}, Output{
		Host: func(string) {}, Warning: func(w string) { t.Log(w) },
		Metric: func(m Metric) {
			t.Log(m.Text())
			seen[m.Name] = true
			if m.N < 2 || m.P50 <= 0 || m.P99 < 0 || m.Host == "" {
				t.Errorf("%+v", m)
			}
		},
		Failure: func(f report.Failure) { t.Errorf("%s: %s", f.Name, f.Error) },
	})
	if err != nil || !complete {
		t.Errorf("complete: %v, %v", complete, err)
	}
	for _, p := range new(rig).parts() {
		for _, name := range p.metrics {
			if !seen[name] {
				t.Errorf("no %s", name)
			}
		}
	}
	restores := map[string]int{}
	for _, line := range checkLines(t, raw, "checkpoint-*.jsonl", 30) {
		var sample struct {
			What  string       `json:"what"`
			Value chainRestore `json:"value"`
		}
		if json.Unmarshal([]byte(line), &sample) == nil && sample.What == chainDepth {
			restores[fmt.Sprint(sample.Value.Chain, " at ", sample.Value.Depth)]++
		}
	}
	if want := map[string]int{"0 at 100": 1, "0 at 1": 1, "1 at 100": 1, "1 at 1": 1}; !maps.Equal(restores, want) {
		t.Errorf("restores of chains: %v, want %v", restores, want)
	}
}

// A search goes back to where it was, whatever the policy; also with the tracker that a
// sandbox has from its start on or never.
func TestSmokeTrajectory(t *testing.T) {
	dir, raw := programs(t), t.TempDir()
	n := 0
	complete, err := RunTrajectory(t.Context(), TrajectoryConfig{
		Config: Config{Bin: dir, RawDir: raw, Progress: t.Output()}, Expansions: 6, Rollbacks: 3, Run: RunCell, Policies: []string{"never", "every:2"},
		Trackers: []string{"dirty-ring"},
	}, TrajectoryOutput{
		Host: func(string) {}, Warning: func(w string) { t.Log(w) },
		Trajectory: func(r Trajectory) {
			t.Log(r.Text())
			n++
			if r.Error != "" || r.Total <= r.Steps || (r.Checkpoints > 0) != (r.Policy != neverPolicy) {
				t.Errorf("%+v", r)
			}
		},
	})
	if err != nil || !complete || n != 3 {
		t.Errorf("complete: %v, %d strategies, %v", complete, n, err)
	}
	// A record for each step, and for the root where it is saved.
	checkLines(t, raw, "trajectory-records.jsonl", 20)
}

// checkLines looks for at least so many lines of JSON in the only file of that name, and
// returns them.
func checkLines(t *testing.T, dir, pattern string, least int) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(names) != 1 {
		t.Fatalf("files %v, %v", names, err)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	var bad error
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, line := range lines {
		if !json.Valid([]byte(line)) {
			bad = errors.Join(bad, errors.New(line))
		}
	}
	if bad != nil || len(lines) < least || bytes.Contains(b, []byte("NaN")) {
		t.Errorf("%d lines, at least %d wanted: %v", len(lines), least, bad)
	}
	return lines
}
