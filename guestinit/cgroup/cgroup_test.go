package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake makes a directory with the files of a cgroup, so that what is written
// and how counters are read is tested without a hierarchy.
func fake(t *testing.T, files map[string]string) *os.File {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func read(t *testing.T, dir *os.File, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir.Name(), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestSetLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		have   []string
		limits Limits
		want   [3]string // memory.max, pids.max, cpu.max
	}{
		{"all", wanted, Limits{MemoryBytes: 1 << 20, Pids: 7, CPUMilli: 1500}, [3]string{"1048576", "7", "150000 100000"}},
		{"none", wanted, Limits{}, [3]string{"-", "-", "-"}},
		{"smallest quota", wanted, Limits{CPUMilli: 1}, [3]string{"-", "-", "1000 100000"}},
		{"no controllers", nil, Limits{MemoryBytes: 1, Pids: 1, CPUMilli: 1}, [3]string{"-", "-", "-"}},
		{"one controller", []string{"pids"}, Limits{MemoryBytes: 1, Pids: 1, CPUMilli: 1}, [3]string{"-", "1", "-"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := fake(t, map[string]string{"memory.max": "-", "pids.max": "-", "cpu.max": "-"})
			g := &Group{m: &Manager{controllers: c.have}, dir: dir}
			if err := g.SetLimits(c.limits); err != nil {
				t.Fatal(err)
			}
			for i, name := range []string{"memory.max", "pids.max", "cpu.max"} {
				if got := read(t, dir, name); got != c.want[i] {
					t.Errorf("%s is %q, want %q", name, got, c.want[i])
				}
			}
		})
	}
}

func TestStats(t *testing.T) {
	files := map[string]string{
		"cpu.stat":       "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 5\n",
		"memory.peak":    "4096\n",
		"memory.current": "2048\n",
		"memory.events":  "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\noom_group_kill 1\n",
		"pids.peak":      "12\n",
		"pids.current":   "4\n",
		"pids.events":    "max 6\n",
	}
	all := func(string) bool { return true }
	got, err := readStats(fake(t, files), all)
	want := Stats{
		CPU: 3 * time.Millisecond, CPUUser: 2 * time.Millisecond, CPUSystem: time.Millisecond,
		MemoryPeak: 4096, OOMKills: 2, PidsPeak: 12, PidsRefused: 6,
	}
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	t.Run("now", func(t *testing.T) {
		m := &Manager{controllers: wanted, dir: fake(t, files)}
		if got := m.Now(); got != (Now{MemoryBytes: 2048, Pids: 4}) {
			t.Errorf("%+v", got)
		}
		m.controllers = nil
		if got := m.Now(); got != (Now{}) {
			t.Errorf("without controllers: %+v", got)
		}
	})
	t.Run("older kernel", func(t *testing.T) {
		delete(files, "memory.peak")
		delete(files, "pids.peak")
		got, err := readStats(fake(t, files), all)
		if err != nil || got.MemoryPeak != 0 || got.OOMKills != 2 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("nonsense", func(t *testing.T) {
		got, err := readStats(fake(t, map[string]string{"cpu.stat": "usage_usec x\n", "memory.peak": "max\n", "pids.peak": "-5"}), all)
		if err != nil || got != (Stats{}) {
			t.Errorf("%+v, %v", got, err)
		}
	})
	t.Run("no group", func(t *testing.T) {
		if _, err := readStats(fake(t, nil), all); err == nil || !strings.Contains(err.Error(), "cpu.stat") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestSkippedNamesMissingControllers(t *testing.T) {
	m := &Manager{controllers: []string{"cpu", "memory"}}
	if got := strings.Join(m.Skipped(), " "); !strings.Contains(got, "io:") || !strings.Contains(got, "pids:") || strings.Contains(got, "cpu:") {
		t.Errorf("skipped: %q", got)
	}
}
