package files

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
)

func memfd(t *testing.T, size int64) *os.File {
	t.Helper()
	f, err := layer.NewMemfd("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestPunchZeros(t *testing.T) {
	const pages = 64
	f := memfd(t, pages*pageSize)
	want := make([]byte, pages*pageSize)
	for page := range pages {
		if page%5 == 0 {
			want[page*pageSize+7] = 1
		}
		if page < 40 { // the rest is a hole already, but for what has data
			if _, err := f.WriteAt(want[page*pageSize:][:pageSize], int64(page)*pageSize); err != nil {
				t.Fatal(err)
			}
		}
	}
	clear(want[40*pageSize:])
	punched, left, err := PunchZeros(f, pages*pageSize)
	if err != nil || punched != 32 || left != 8 {
		t.Fatalf("%d punched, %d left, %v", punched, left, err)
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the bytes changed (%v)", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Blocks*512 != 8*pageSize {
		t.Errorf("%d bytes are allocated, %v", st.Blocks*512, err)
	}
	if err := layer.Seal(f); err != nil {
		t.Errorf("it cannot be sealed: %v", err)
	}
}

func TestCutSeals(t *testing.T) {
	f := memfd(t, 1<<20)
	if err := Cut(f, 100); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("written: %v", err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != 100 {
		t.Errorf("%d bytes, %v", st.Size(), err)
	}
}

// What a VMM has written is hostile.
func TestDeltaRefuses(t *testing.T) {
	const pages = 100
	state := func(x *pageindex.Index) *os.File {
		var w format.Writer
		if x != nil {
			if err := w.Add(format.SectionMemory, x.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		f := memfd(t, 0)
		if _, err := w.WriteTo(f); err != nil {
			t.Fatal(err)
		}
		return f
	}
	run := func(r pageindex.Run) *pageindex.Index {
		return &pageindex.Index{Pages: pages, Runs: []pageindex.Run{r}}
	}
	good := run(pageindex.Run{First: 3, Count: 2, Source: pageindex.FirstOverlay})
	if x, err := Delta(state(good), pages, 2); err != nil || len(x.Runs) != 1 {
		t.Fatalf("%+v, %v", x, err)
	}
	for name, f := range map[string]*os.File{
		"no index":      state(nil),
		"other size":    state(&pageindex.Index{Pages: pages - 1}),
		"beyond file":   state(run(pageindex.Run{First: 3, Count: 3, Source: pageindex.FirstOverlay})),
		"second source": state(run(pageindex.Run{First: 3, Count: 1, Source: pageindex.FirstOverlay + 1})),
		"no state":      memfd(t, 8192),
	} {
		if x, err := Delta(f, pages, 2); err == nil {
			t.Errorf("%s: %+v", name, x)
		}
	}
}

func TestRecording(t *testing.T) {
	f := memfd(t, 0)
	if _, err := f.WriteAt((&pageindex.Index{Pages: 10, Runs: []pageindex.Run{{First: 2, Count: 3}}}).Encode(), 0); err != nil {
		t.Fatal(err)
	}
	if x, err := Recording(f, 10); err != nil || len(x.Runs) != 1 {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := Recording(f, 9); err == nil {
		t.Error("a recording of a larger memory was taken")
	}
	if _, err := Recording(memfd(t, 4<<20), 10); err == nil {
		t.Error("zeros were taken for a recording")
	}
}
