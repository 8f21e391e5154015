package pageindex

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

func TestDecodeRefuses(t *testing.T) {
	good := (&Index{Pages: 100, Runs: []Run{
		{First: 3, Count: 7, Source: Base, At: 3},
		{First: 10, Count: 2, Source: 2, At: 5},
	}}).Encode()
	if _, err := Decode(good, 100); err != nil {
		t.Fatal(err)
	}
	edit := func(at int, v ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], v)
		return b
	}
	for name, b := range map[string][]byte{
		"empty":            nil,
		"header cut":       good[:15],
		"magic":            edit(0, 'X'),
		"version":          edit(4, 2),
		"reserved":         edit(6, 1),
		"too many pages":   edit(8, 101),
		"fewer pages":      edit(8, 11),
		"runs that lack":   edit(12, 3),
		"a million runs":   edit(12, 0xff, 0xff, 0xff, 0x0f),
		"trailing byte":    append(bytes.Clone(good), 0),
		"cut":              good[:len(good)-1],
		"no pages in run":  edit(17, 0),
		"jump in base":     append(edit(18, 3), 2),
		"long number":      append(edit(12, 1)[:16], 0x83, 0x00, 1, 2),
		"run out of range": append(edit(12, 1)[:16], 0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2),
	} {
		if _, err := Decode(b, 100); !errors.Is(err, ErrIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateSources(t *testing.T) {
	x := &Index{Pages: 10, Runs: []Run{{First: 1, Count: 2, Source: 3, At: 4}}}
	if err := x.Validate([]uint32{0, 6}); err != nil {
		t.Fatal(err)
	}
	for name, pages := range map[string][]uint32{"short": {0, 5}, "missing": {9}, "none": nil} {
		if err := x.Validate(pages); !errors.Is(err, ErrIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSourcesCountRenumber(t *testing.T) {
	x := &Index{Pages: 10, Runs: []Run{
		{First: 0, Count: 1, Source: 3, At: 0},
		{First: 1, Count: 2, Source: Base, At: 1},
		{First: 4, Count: 3, Source: 3, At: 1},
		{First: 8, Count: 1},
	}}
	want := []Use{{Zero, 1, 1}, {Base, 2, 1}, {3, 4, 2}}
	if got := x.Sources(); !reflect.DeepEqual(got, want) {
		t.Errorf("sources %v", got)
	}
	if n := x.Count(func(s uint16) bool { return s != Zero }); n != 6 {
		t.Errorf("%d pages", n)
	}
	y := x.Renumber(func(uint16) uint16 { return 9 }).WithoutZero()
	if got := y.Sources(); !reflect.DeepEqual(got, []Use{{Base, 2, 1}, {9, 4, 2}}) {
		t.Errorf("renumbered %v", got)
	}
}

func TestFromHoles(t *testing.T) {
	const page = PageSize
	fd, err := unix.MemfdCreate("holes", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "holes")
	defer f.Close()
	const size = 5000 * page
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	index := func() []Run {
		t.Helper()
		x, err := FromHoles(f, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.Validate(nil); err != nil {
			t.Fatal(err)
		}
		return x.Runs
	}
	if r := index(); r != nil {
		t.Fatalf("empty file: %v", r)
	}
	// Between 511 and 1024, and 2049 and 3072, a whole range of 2 MiB is a hole.
	for _, p := range []int64{0, 100, 511, 1024, 1536, 2047, 2048, 2049, 3072, 3582, 4095} {
		if _, err := f.WriteAt([]byte{1}, p*page); err != nil {
			t.Fatal(err)
		}
	}
	want := []Run{{0, 512, Base, 0}, {1024, 1026, Base, 1024}, {3072, 1024, Base, 3072}}
	if r := index(); !reflect.DeepEqual(r, want) {
		t.Fatalf("%v", r)
	}
	// Data that fills the range from 4096 to 4608 so far that it becomes a huge page, and
	// a page less; and two runs that do it together.
	for _, c := range []struct {
		data [][2]int64
		want [2]uint32
	}{
		{[][2]int64{{4250, 4700}}, [2]uint32{4096, 4700}},
		{[][2]int64{{4251, 4700}}, [2]uint32{4251, 4700}},
		{[][2]int64{{4000, 4454}}, [2]uint32{4000, 4608}},
		{[][2]int64{{4000, 4453}}, [2]uint32{4000, 4453}},
		{[][2]int64{{4146, 4504}}, [2]uint32{4096, 4608}},
		{[][2]int64{{4146, 4503}}, [2]uint32{4146, 4503}},
		{[][2]int64{{10, 20}, {32, 512}}, [2]uint32{0, 512}},
		{[][2]int64{{8, 258}, {264, 504}}, [2]uint32{0, 512}},
	} {
		if err := errors.Join(f.Truncate(0), f.Truncate(size)); err != nil {
			t.Fatal(err)
		}
		for _, run := range c.data {
			if _, err := f.WriteAt(make([]byte, (run[1]-run[0])*page), run[0]*page); err != nil {
				t.Fatal(err)
			}
		}
		if r := index(); len(r) != 1 || r[0].First != c.want[0] || r[0].End() != c.want[1] {
			t.Errorf("data at %d: %v, not %d", c.data, r, c.want)
		}
	}
	if _, err := FromHoles(f, size+1); !errors.Is(err, ErrIndex) {
		t.Fatalf("odd size: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add((&Index{}).Encode())
	f.Add((&Index{Pages: 1 << 20, Runs: []Run{
		{First: 3, Count: 7, Source: Base, At: 3},
		{First: 10, Count: 2, Source: 2, At: 5},
		{First: 14, Count: 1},
		{First: 20, Count: 2, Source: 3, At: 0},
		{First: 40, Count: 1000, Source: 2, At: 0},
	}}).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := Decode(b, 1<<22)
		if err != nil {
			if !errors.Is(err, ErrIndex) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if err := x.check(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(x.Encode(), b) {
			t.Fatal("two encodings of one index")
		}
		y := Merge(x, x.WithoutZero())
		if err := y.check(); err != nil {
			t.Fatal(err)
		}
	})
}
