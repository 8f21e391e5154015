package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// fakeFreezer is a manager over plain files, whose processes never stand still.
func fakeFreezer(t *testing.T, events string) *Manager {
	t.Helper()
	dir := t.TempDir()
	m := new(Manager)
	for _, f := range []struct {
		to            **os.File
		name, content string
	}{{&m.freeze, "cgroup.freeze", "0"}, {&m.events, "cgroup.events", events}} {
		path := filepath.Join(dir, f.name)
		if err := os.WriteFile(path, []byte(f.content), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		*f.to = file
	}
	return m
}

func (m *Manager) written(t *testing.T) string {
	t.Helper()
	b := make([]byte, 8)
	n, err := m.freeze.ReadAt(b, 0)
	if n == 0 {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestFreezeGivesUp(t *testing.T) {
	m := fakeFreezer(t, "populated 1\nfrozen 0\n")
	begin := time.Now()
	if err := m.Freeze(begin.Add(30 * time.Millisecond)); !errors.Is(err, ErrFreezeTimeout) {
		t.Errorf("error is %v", err)
	}
	if took := time.Since(begin); took < 30*time.Millisecond || took > 5*time.Second {
		t.Errorf("gave up after %v", took)
	}
	if got := m.written(t); got != "0" {
		t.Errorf("left at %q", got)
	}
}

func TestFreezeSucceeds(t *testing.T) {
	m := fakeFreezer(t, "populated 1\nfrozen 1\n")
	// Also where the deadline is over: it stands still, and that was asked for.
	if err := m.Freeze(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if got := m.written(t); got != "1" {
		t.Errorf("left at %q", got)
	}
	if err := m.Thaw(); err != nil || m.written(t) != "0" {
		t.Errorf("left at %q, %v", m.written(t), err)
	}
}
