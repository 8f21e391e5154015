package fleet

import (
	"bytes"
	"testing"

	"thaw/broker/fleet/files"
	"thaw/snapshot/pageindex"
)

// A chain of many deltas is folded into few files, in which every page is what the
// newest delta has for it.
func TestFold(t *testing.T) {
	const pages = 64
	want := make([][]byte, pages)
	im := &image{memory: &pageindex.Index{Pages: pages}, data: &pageindex.Index{Pages: pages}}
	defer im.close()
	for n := range 60 {
		b := pageindex.NewBuilder(pages)
		var data []byte
		for page := uint32(n % 7); page < pages; page += uint32(n%13 + 1) {
			content := bytes.Repeat([]byte{byte(n + 1)}, pageSize)
			if err := b.Add(pageindex.Run{First: page, Count: 1, Source: pageindex.FirstOverlay, At: uint32(len(data) / pageSize)}); err != nil {
				t.Fatal(err)
			}
			data, want[page] = append(data, content...), content
		}
		f, err := files.Sealed("delta", data)
		if err != nil {
			t.Fatal(err)
		}
		file := share(f)
		err = im.add(b.Index(), file)
		file.release()
		if err != nil {
			t.Fatal(err)
		}
		if len(im.overlays) > maxOverlays {
			t.Fatalf("%d files after %d deltas", len(im.overlays), n+1)
		}
	}
	for page := range uint32(pages) {
		run, ok := im.memory.Lookup(page)
		if !ok {
			if want[page] != nil {
				t.Errorf("page %d is nowhere", page)
			}
			continue
		}
		got := make([]byte, pageSize)
		at := int64(run.At+page-run.First) * pageSize
		if _, err := im.overlays[run.Source-pageindex.FirstOverlay].ReadAt(got, at); err != nil || !bytes.Equal(got, want[page]) {
			t.Errorf("page %d has %d, want %d (%v)", page, got[0], want[page][0], err)
		}
	}
}

// What a job writes is found out by one at a time, again after a failure, but not for ever.
func TestClaimJob(t *testing.T) {
	x, im := new(images), new(image)
	for n := range jobFailures {
		if !x.claimJob(im, "python") {
			t.Fatalf("not claimed after %d failures", n)
		}
		if x.claimJob(im, "python") {
			t.Fatalf("claimed twice after %d failures", n)
		}
		x.unclaimJob(im, "python")
	}
	if x.claimJob(im, "python") {
		t.Errorf("claimed after %d failures", jobFailures)
	}
}
