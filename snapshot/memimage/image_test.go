package memimage

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/snapshot/pageindex"
)

func TestRollbackDropsALargeMemory(t *testing.T) {
	const size = (dropAbove + 100) * pageSize
	base := memfd(t, nil)
	if err := base.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := base.WriteAt([]byte("base"), 5*pageSize); err != nil {
		t.Fatal(err)
	}
	index, err := pageindex.FromHoles(base, size)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := guestmem.Reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Unmap()
	x, err := Open(Plan{Base: index, Memory: index, Hot: &pageindex.Index{Pages: index.Pages}}, size, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.Lay(mem, nil); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < size; i += pageSize {
		mem.Host()[i] = 1
	}
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	private, err := pagemap.New(f).Private(mem.Host(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := x.Rollback(mem, private, false, nil)
	if err != nil || !n.Dropped {
		t.Fatalf("%+v, %v", n, err)
	}
	if got := mem.Host()[5*pageSize:][:4]; string(got) != "base" || mem.Host()[0] != 0 || mem.Host()[size-pageSize] != 0 {
		t.Errorf("memory is %q, %d, %d", got, mem.Host()[0], mem.Host()[size-pageSize])
	}
}

func TestImageThatDoesNotFit(t *testing.T) {
	index := func(runs ...pageindex.Run) *pageindex.Index { return &pageindex.Index{Pages: pages, Runs: runs} }
	none := index()
	baseRun := pageindex.Run{First: 3, Count: 4, Source: pageindex.Base, At: 3}
	overlay := pageindex.Run{First: 3, Count: 4, Source: pageindex.FirstOverlay, At: pages - 3}
	for _, c := range []struct {
		name     string
		plan     Plan
		base     bool
		overlays int
	}{
		{"base is missing", Plan{Base: index(baseRun), Memory: none, Hot: none}, false, 0},
		{"base's page without base", Plan{Base: none, Memory: index(baseRun), Hot: none}, false, 0},
		{"overlay is missing", Plan{Base: none, Memory: index(overlay), Hot: none}, false, 0},
		{"overlay is short", Plan{Base: none, Memory: index(overlay), Hot: none}, false, 1},
		{"too many overlays", Plan{Base: none, Memory: none, Hot: none}, false, MaxOverlays + 1},
		{"other size", Plan{Base: &pageindex.Index{Pages: 7}, Memory: &pageindex.Index{Pages: 7}, Hot: none}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var base *os.File
			if c.base {
				base = memfd(t, nil)
			}
			var overlays []*os.File
			for range c.overlays {
				overlays = append(overlays, memfd(t, nil))
			}
			x, err := Open(c.plan, pages*pageSize, base, overlays)
			if err == nil {
				x.Close()
				t.Fatal("it was opened")
			}
			if !errors.Is(err, ErrImage) && !errors.Is(err, pageindex.ErrIndex) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzDecodePlan(f *testing.F) {
	run := pageindex.Run{First: 1, Count: 2, Source: pageindex.Base, At: 1}
	x := &pageindex.Index{Pages: pages, Runs: []pageindex.Run{run}}
	f.Add(Plan{Base: x, Memory: x, Hot: hot()}.Encode())
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePlan(b, pages)
		if err != nil {
			if !errors.Is(err, ErrImage) {
				t.Errorf("error %v does not wrap ErrImage", err)
			}
			return
		}
		if got := p.Encode(); !bytes.Equal(got, b) {
			t.Errorf("%x was taken, and is %x", b, got)
		}
		if x, err := Open(p, pages*pageSize, memfd(t, nil), nil); err == nil {
			x.Close()
		}
	})
}

// An image of the same pages in the same files is the image that there is; any other is not.
func TestReopenTheSame(t *testing.T) {
	index := func(runs ...pageindex.Run) *pageindex.Index { return &pageindex.Index{Pages: pages, Runs: runs} }
	baseRun, overlayRun := pageindex.Run{First: 3, Count: 4, Source: pageindex.Base, At: 3}, pageindex.Run{First: 9, Count: 2, Source: pageindex.FirstOverlay}
	plan := Plan{Base: index(baseRun), Memory: index(baseRun, overlayRun), Hot: index()}
	base, overlay := memfd(t, nil), memfd(t, nil)
	defer base.Close()
	defer overlay.Close()
	fewer := plan
	fewer.Memory = index(baseRun)
	for name, c := range map[string]struct {
		plan          Plan
		base, overlay *os.File
		same          bool
	}{
		"same":                       {plan, dup(t, base), dup(t, overlay), true},
		"other pages":                {fewer, dup(t, base), dup(t, overlay), false},
		"other base":                 {plan, memfd(t, nil), dup(t, overlay), false},
		"other file of same content": {plan, dup(t, base), memfd(t, nil), false},
	} {
		x, err := Open(plan, pages*pageSize, dup(t, base), []*os.File{dup(t, overlay)})
		if err != nil {
			t.Fatal(err)
		}
		next, err := x.Reopen(c.plan, c.base, []*os.File{c.overlay})
		if err != nil || (next == x) != c.same {
			t.Errorf("%s: same %t, %v", name, next == x, err)
		}
		if c.same && c.base.Close() == nil {
			t.Errorf("%s: a file was left open", name)
		}
		if err := next.Close(); err != nil {
			t.Error(err)
		}
	}
}
