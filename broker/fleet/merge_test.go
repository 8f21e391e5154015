package fleet

import (
	"bytes"
	"testing"
	"time"

	"thaw/snapshot/hot"
	"thaw/snapshot/pageindex"
)

// An image that is being opened while its snapshot is changed, or that is not yet known to be
// in the store, is not used afterwards.
func TestRenew(t *testing.T) {
	x := newImages(&Fleet{hot: hot.New(1 << 20), cfg: Config{HotBytes: 1 << 20}})
	l := &loading{done: make(chan struct{})}
	x.loading["a"] = l
	x.mu.Lock()
	done := make(chan struct{})
	go func() { defer close(done); x.renew("a") }()
	x.byID["a"] = &image{id: "a", stored: true}
	x.mu.Unlock()
	select {
	case <-done:
		t.Error("it did not wait for the image")
	case <-time.After(10 * time.Millisecond):
	}
	x.mu.Lock()
	delete(x.loading, "a")
	x.mu.Unlock()
	close(l.done)
	<-done
	if x.byID["a"] != nil {
		t.Error("the image that was being opened is used on")
	}

	b := &image{id: "b"}
	x.byID["b"] = b
	x.renew("b")
	if x.byID["b"] != b {
		t.Error("an image that can be had nowhere else is gone")
	}
	if x.settle(b, nil); x.byID["b"] != nil {
		t.Error("an image is used on whose snapshot was changed before it was known to be stored")
	}
}

// A checkpoint that was restored and is then merged is restored from what the merge made,
// with the same memory; machines that run on it go on, roll back to it and are saved.
func TestMergedIsOpenedAnew(t *testing.T) {
	r := newRig(t, nil)
	template := r.template(small)
	m := r.restore(template)
	cell(t, m, "import os; data = bytearray(os.urandom(1 << 20))")
	checkpoint(t, m)
	cell(t, m, "data[:200000] = os.urandom(200000); step = 2")
	checkpoint(t, m)
	const sum = "import hashlib; print(step, hashlib.sha256(data).hexdigest())"
	cell(t, m, "data[100000:300000] = bytes(200000); step = 3")
	id := checkpoint(t, m).ID
	want := cell(t, m, sum)

	before, err := r.images.get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer before.release()
	running := r.restore(id)
	if got := running.Record(); got.Depth != 3 || got.Overlays != 3 {
		t.Errorf("before: depth %d with %d files", got.Depth, got.Overlays)
	}
	if err := r.Merge(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	merged := r.restore(id)
	if got := merged.Record(); got.Depth != 1 || got.Overlays != 1 {
		t.Errorf("merged: depth %d with %d files", got.Depth, got.Overlays)
	}
	samePages(t, before.image, merged.current.image)
	if s, err := r.cfg.Store.Get(id); err != nil || s.Record.Depth != 1 || s.Parent != template {
		t.Errorf("%v, %v", s, err)
	}

	if _, err := running.Rollback(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]*Machine{"restored": merged, "rolled back": running, "that was saved": m} {
		if got := cell(t, x, sum); got != want {
			t.Errorf("the machine %s has %s, want %s", name, got, want)
		}
	}
	cell(t, m, "data[-4096:] = bytes(4096); step = 4")
	want = cell(t, m, sum)
	child := r.restore(checkpoint(t, m).ID)
	if got := cell(t, child, sum); got != want {
		t.Errorf("a child has %s, want %s", got, want)
	}
}

// samePages compares the memory of two images of one template, page by page.
func samePages(t *testing.T, a, b *image) {
	t.Helper()
	own := 0
	for page := range uint32(a.class.MemoryMiB * mib / pageSize) {
		x, y := contentOf(t, a, page), contentOf(t, b, page)
		if x != nil {
			own++
		}
		if !bytes.Equal(x, y) {
			t.Fatalf("page %d differs", page)
		}
	}
	if own < 200 {
		t.Errorf("only %d pages are not the template's", own)
	}
}

// contentOf is a page that is not the template's.
func contentOf(t *testing.T, im *image, page uint32) []byte {
	t.Helper()
	run, ok := im.memory.Lookup(page)
	switch {
	case !ok:
		return make([]byte, pageSize)
	case !run.Dense():
		return nil
	}
	b := make([]byte, pageSize)
	if _, err := im.overlays[run.Source-pageindex.FirstOverlay].ReadAt(b, int64(run.At+page-run.First)*pageSize); err != nil {
		t.Fatal(err)
	}
	return b
}
