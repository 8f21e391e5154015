package store

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"thaw/snapshot/format"
)

// testFolder folds the disks of these tests, whose layers have all of the disk in each. In
// the state it counts what it has done.
type testFolder struct{}

func (testFolder) Rebase(state, _ []byte, _ map[string]int) ([]byte, error) { return state, nil }

func (testFolder) Fold(_ context.Context, state []byte, _ string, files []*os.File, first, last int, out *os.File) ([]byte, error) {
	if out != nil {
		for _, f := range files[first:last] {
			if f == nil {
				return nil, fmt.Errorf("a layer is not open: %w", ErrDamaged)
			}
		}
		if _, err := io.Copy(out, io.NewSectionReader(files[last-1], 0, 1<<20)); err != nil {
			return nil, err
		}
	}
	file, err := format.Read(bytes.NewReader(state), format.Limits{})
	if err != nil {
		return nil, err
	}
	var machine map[string]int
	if err := file.CBOR(format.SectionMachine, &machine); err != nil {
		return nil, err
	}
	machine["folded"] += last - first - 1
	delta, err := file.Section(format.SectionMemory)
	if err != nil {
		return nil, err
	}
	var w format.Writer
	if err := w.AddCBOR(format.SectionMachine, machine); err != nil {
		return nil, err
	}
	if err := w.Add(format.SectionMemory, delta); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = w.WriteTo(&b)
	return b.Bytes(), err
}

func TestGroups(t *testing.T) {
	for n := range 4096 {
		for _, keep := range []int{1, 2, 3} {
			at, long := keep, 0
			list := groups(keep, keep+n)
			for _, g := range list {
				if g.first != at || g.last <= g.first {
					t.Fatalf("%d: %v", n, list)
				}
				if at = g.last; g.last-g.first > 1 {
					if long++; (g.last-g.first)%groupLayers != 0 {
						t.Fatalf("%d: %v", n, list)
					}
				}
			}
			if at != keep+n || len(list)-long >= groupLayers || long > 7 {
				t.Fatalf("%d: %d of %v", n, at, list)
			}
		}
	}
}

// A deep chain is opened with few files, which are the same for all above them, are
// bounded, and leave nothing behind.
func TestDeepDisks(t *testing.T) {
	ctx := context.Background()
	s := open(t, memoryDir(t))
	m := newMachine(t, 3)
	ids, disks := []string{m.mustSave(s, "")}, []string{string(m.disk)}
	for range 70 {
		m.run()
		ids, disks = append(ids, m.mustSave(s, ids[len(ids)-1])), append(disks, string(m.disk))
	}
	check := func() {
		t.Helper()
		for i, id := range ids {
			if got := top(t, s, id); got != disks[i] {
				t.Fatalf("%d: %q, not %q", i, got, disks[i])
			}
		}
	}
	check()
	files := map[*os.File]bool{}
	for _, id := range ids[64:] {
		c, err := s.Resolve(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(c.Disks[1].Files); n > 2+6 {
			t.Errorf("%d files", n)
		}
		files[c.Disks[1].Files[1]] = true
		if _, err := c.Disks[1].Files[1].WriteAt([]byte{1}, 0); err == nil {
			t.Error("a folded file can be written")
		}
		file, err := format.Read(c.State, format.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		var machine map[string]int
		if err := file.CBOR(format.SectionMachine, &machine); err != nil || machine["folded"] != 63 {
			t.Errorf("%v, %v", machine, err)
		}
		c.Close()
	}
	if len(files) != 1 {
		t.Errorf("%d files for the same layers", len(files))
	}
	clean(t, s)
	// The owner of a group is merged: those above it have a group of their own.
	if _, err := s.Merge(ctx, ids[64]); err != nil {
		t.Fatal(err)
	}
	check()
	s = reopen(t, s)
	check()
	if err := s.Delete(ids[0], true); err != nil {
		t.Fatal(err)
	}
}
