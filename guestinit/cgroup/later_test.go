package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Groups of the dead stay for a while, some of them, and go at once when they must.
func TestRemoveLater(t *testing.T) {
	path := t.TempDir()
	dir, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	m := &Manager{dir: dir, closed: true} // it makes no spare one
	m.later = later{hurry: make(chan struct{}), groups: make(map[chan struct{}]struct{})}
	for n := range maxLater + 3 {
		g := &Group{m: m, name: fmt.Sprint(n)}
		if err := os.Mkdir(filepath.Join(path, g.name), 0o700); err != nil {
			t.Fatal(err)
		}
		if g.dir, err = os.Open(filepath.Join(path, g.name)); err != nil {
			t.Fatal(err)
		}
		g.RemoveLater()
		m.mu.Lock()
		if have := len(m.later.groups); have > maxLater {
			t.Errorf("%d groups stay", have)
		}
		m.mu.Unlock()
	}
	if err := m.RemoveNow(time.Now().Add(10 * time.Second)); err != nil {
		t.Error(err)
	}
	m.wg.Wait()
	if left, err := os.ReadDir(path); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
