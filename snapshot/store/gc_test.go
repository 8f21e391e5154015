package store

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestGCAndSpace(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir())
	m := newMachine(t, 7)
	base := m.mustSave(s, "")
	var leaves []string
	for range 4 {
		f := m.fork(9)
		f.run()
		leaves = append(leaves, f.mustSave(s, base))
	}
	s.mu.Lock()
	for i, id := range leaves {
		s.entries[id].used = time.Now().Add(time.Duration(i) * time.Hour)
	}
	s.mu.Unlock()
	lease, err := s.Lease(leaves[0])
	if err != nil {
		t.Fatal(err)
	}
	defer lease.Release()
	if gone, err := s.GC(ctx, Watermark{High: s.Used(), Low: 0}, nil); err != nil || gone != nil {
		t.Fatalf("%v, %v", gone, err)
	}
	one := s.entries[leaves[1]].bytes
	gone, err := s.GC(ctx, Watermark{High: s.Used() - 1, Low: s.Used() - one}, nil)
	if err != nil || len(gone) != 1 || gone[0] != leaves[1] {
		t.Fatalf("%v, %v", gone, err)
	}
	gone, err = s.GC(ctx, Watermark{}, func(m *Manifest) bool { return m.ID == leaves[3] })
	if err != nil || len(gone) != 1 || gone[0] != leaves[2] {
		t.Fatalf("%v, %v", gone, err)
	}
	s.opts.MaxBytes = s.Used() - 1
	if _, err := m.save(s, base); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	s.opts.MaxBytes, s.opts.MinFree = 0, 1<<60
	if _, err := m.save(s, base); !errors.Is(err, ErrNoSpace) {
		t.Fatal(err)
	}
	clean(t, s)
}

func TestTree(t *testing.T) {
	s := open(t, t.TempDir())
	m := newMachine(t, 8)
	base := m.mustSave(s, "")
	a := m.mustSave(s, base)
	b := m.mustSave(s, base)
	c := m.mustSave(s, a)
	roots := s.Tree("t")
	if len(roots) != 1 || roots[0].ID != base || len(roots[0].Children) != 2 {
		t.Fatalf("%+v", roots)
	}
	if x, y := roots[0].Children[0], roots[0].Children[1]; x.ID != a || y.ID != b || len(x.Children) != 1 || x.Children[0].ID != c {
		t.Fatalf("%+v", roots[0].Children)
	}
	if got := s.Tree("nobody"); len(got) != 0 {
		t.Fatal(got)
	}
}
