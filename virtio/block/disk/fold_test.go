package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// foldAt folds layers and returns the files and the index of the lower pile.
func foldAt(t rapid.TB, dir string, files []*os.File, s State, first, last int) ([]*os.File, State) {
	out, err := os.CreateTemp(dir, "folded")
	if err != nil {
		t.Fatal(err)
	}
	os.Remove(out.Name())
	if err := s.CopyBlocks(context.Background(), out, files, first, last); err != nil {
		t.Fatal(err)
	}
	lower := append(append(append([]*os.File{}, files[:first]...), out), files[last:]...)
	return lower, s.Fold(first, last)
}

// A pile that is folded, anywhere, any number of times, with a machine that goes on
// above the old one meanwhile, has the same bytes.
func TestFoldLikeFlatFile(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{dir: dir}
		defer m.close()
		m.flat = bytes.Repeat([]byte{9}, rapid.IntRange(1, 40*BlockSize/SectorSize).Draw(rt, "sectors")*SectorSize)
		if _, err := m.file(rt).Write(m.flat); err != nil {
			rt.Fatal(err)
		}
		d, err := Open(m.files, false)
		if err != nil {
			rt.Fatal(err)
		}
		m.disk = d
		m.freeze(rt)
		lower, below := m.files, m.disk.State() // what is stored: folded now and then
		for range rapid.IntRange(1, 8).Draw(rt, "freezes") {
			for range rapid.IntRange(0, 3).Draw(rt, "writes") {
				m.write(rt)
				if rapid.Bool().Draw(rt, "zero too") {
					m.zero(rt)
				}
			}
			m.freeze(rt)
			s := m.disk.State()
			if err := s.Validate(false); err != nil {
				rt.Fatal(err)
			}
			if below, err = s.Rebase(below); err != nil {
				rt.Fatal(err)
			}
			n := len(m.files)
			lower = append(append([]*os.File{}, lower[:len(lower)-1]...), m.files[n-2], m.files[n-1])
			if last := below.Layers - 1; last > 2 && rapid.Bool().Draw(rt, "fold") {
				first := rapid.IntRange(1, last-1).Draw(rt, "first")
				lower, below = foldAt(rt, dir, lower, below, first, rapid.IntRange(first+1, last).Draw(rt, "last"))
			}
			if err := below.Validate(false); err != nil {
				rt.Fatal(err)
			}
			again, err := Restore(lower, false, below)
			if err != nil {
				rt.Fatal(err)
			}
			got := make([]byte, len(m.flat))
			var v Vector
			v.Add(got)
			if err := again.Read(&v, 0); err != nil {
				rt.Fatal(err)
			}
			if !bytes.Equal(got, m.flat) {
				rt.Fatal("the lower pile has other bytes")
			}
		}
	})
}

func TestFoldRefuses(t *testing.T) {
	d, files := pile(t)
	s := d.State()
	if _, err := s.Rebase(s); !errors.Is(err, ErrState) {
		t.Errorf("rebase with a top: %v", err)
	}
	if err := d.Freeze(file(t, nil)); err != nil {
		t.Fatal(err)
	}
	s = d.State()
	if _, err := s.Rebase(State{Size: s.Size, Layers: 1}); !errors.Is(err, ErrState) {
		t.Errorf("rebase on a single file: %v", err)
	}
	other := s
	other.Size += BlockSize
	if _, err := s.Rebase(other); !errors.Is(err, ErrState) {
		t.Errorf("rebase on another disk: %v", err)
	}
	if err := files[1].Truncate(BlockSize); err != nil {
		t.Fatal(err)
	}
	if err := s.CopyBlocks(context.Background(), file(t, nil), append(files, nil), 1, 3); !errors.Is(err, ErrState) {
		t.Errorf("short layer: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.CopyBlocks(ctx, file(t, nil), append(files, nil), 1, 3); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for name, bad := range map[string]State{
		"size":    {Size: 100, Layers: 1},
		"layers":  {Size: 512, Layers: MaxLayers + 1},
		"single":  {Size: 512, Layers: 1, Under: runs(Run{Count: 1})},
		"overlap": {Size: 512, Layers: 3, Under: runs(Run{Count: 1}, Run{Count: 1})},
		"in top":  {Size: 512, Layers: 2, Under: runs(Run{Count: 1, Layer: 1})},
	} {
		if err := bad.Validate(false); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
