package memimage

import (
	"bytes"
	"crypto/rand"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/uffd"
	"thaw/snapshot/pageindex"
)

// shorts are runs of an overlay over a base whose pages 100 to 199 are a hole.
var shorts = []pageindex.Run{
	{First: 3, Count: 1}, {First: 90, Count: 2, At: 1}, {First: 98, Count: 4, At: 3}, {First: 150, Count: 1, At: 7},
	{First: pages - 1, Count: 1, At: 8},
}

// scattered opens an image of shorts over base, which is empty, and returns what it shows.
func scattered(t *testing.T, base *os.File) (x *Image, want []byte) {
	t.Helper()
	want = bytes.Repeat([]byte{1}, pages*pageSize)
	clear(want[100*pageSize : 200*pageSize])
	for _, part := range [][2]int{{0, 100}, {200, pages}} {
		if _, err := base.WriteAt(want[part[0]*pageSize:part[1]*pageSize], int64(part[0])*pageSize); err != nil {
			t.Fatal(err)
		}
	}
	index, err := pageindex.FromHoles(base, pages*pageSize)
	if err != nil {
		t.Fatal(err)
	}
	layer := make([]byte, pages*pageSize)
	rand.Read(layer)
	b := pageindex.NewBuilder(pages)
	for _, r := range shorts {
		r.Source = pageindex.FirstOverlay
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
		copy(want[r.First*pageSize:], layer[r.At*pageSize:][:r.Count*pageSize])
	}
	overlay := memfd(t, layer)
	defer overlay.Close()
	plan := Plan{Base: index, Memory: pageindex.Merge(index, b.Index()), Hot: &pageindex.Index{Pages: pages}}
	x, err = Open(plan, pages*pageSize, dup(t, base), []*os.File{dup(t, overlay)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x, want
}

func filler(t *testing.T) *uffd.FD {
	t.Helper()
	fill, err := uffd.UserModeOnly()
	if err != nil {
		t.Fatal(err)
	}
	return fill
}

// With a userfaultfd or without, whatever the base lies on and even where a page is there
// already, the memory shows the image, can be used, and the base stays as it is.
func TestLayCopiesShortRuns(t *testing.T) {
	for name, c := range map[string]struct{ disk, fill, touched bool }{
		"plain": {}, "userfaultfd": {fill: true}, "on a disk": {fill: true, disk: true}, "page is there": {fill: true, touched: true},
	} {
		t.Run(name, func(t *testing.T) {
			base := memfd(t, nil)
			if c.disk {
				base.Close()
				var err error
				if base, err = os.Create(filepath.Join(t.TempDir(), "base")); err != nil {
					t.Fatal(err)
				}
			}
			defer base.Close()
			x, want := scattered(t, base)
			mem, err := guestmem.Reserve(pages * pageSize)
			if err != nil {
				t.Fatal(err)
			}
			defer mem.Unmap()
			if c.touched {
				mem.Host()[150*pageSize] = 7
			}
			before := make([]byte, pages*pageSize)
			if _, err := base.ReadAt(before, 0); err != nil {
				t.Fatal(err)
			}
			var fill *uffd.FD
			if c.fill {
				fill = filler(t)
			}
			if err := x.Lay(mem, fill); err != nil {
				t.Fatal(err)
			}
			if c.fill {
				if _, err := unix.FcntlInt(uintptr(fill.Fd()), unix.F_GETFD, 0); err == nil {
					t.Error("the userfaultfd is still open")
				}
			}
			if !bytes.Equal(mem.Host(), want) {
				t.Error("memory differs from the image")
			}
			for page := range pages {
				mem.Host()[page*pageSize]++
			}
			after := make([]byte, pages*pageSize)
			if _, err := base.ReadAt(after, 0); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(after, before) {
				t.Error("the base has changed")
			}
		})
	}
}
