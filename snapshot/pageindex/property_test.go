package pageindex

import (
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// place is where one page is: the naive form of an index.
type place struct {
	source uint16
	at     uint32
}

// model is an index as a map of its pages. A page that is not there has no run.
type model map[uint32]place

func modelOf(x *Index) model {
	m := model{}
	for _, r := range x.Runs {
		for i := range r.Count {
			p := place{source: r.Source}
			if r.Source != Zero {
				p.at = r.At + i
			}
			m[r.First+i] = p
		}
	}
	return m
}

const testPages = 200

// drawIndex draws a valid index of the given overlays.
func drawIndex(t *rapid.T, label string, base bool, sources ...uint16) *Index {
	b := NewBuilder(testPages)
	kinds := append([]uint16{Zero}, sources...)
	if base {
		kinds = append(kinds, Base)
	}
	next := map[uint16]uint32{}
	for at := uint32(0); ; {
		at += uint32(rapid.IntRange(0, 20).Draw(t, label+" gap"))
		n := uint32(rapid.IntRange(1, 20).Draw(t, label+" count"))
		if at+n > testPages {
			return b.Index()
		}
		r := Run{First: at, Count: n, Source: rapid.SampledFrom(kinds).Draw(t, label+" source")}
		switch {
		case r.Source == Base:
			r.At = at
		case r.Dense():
			// Mostly in order, as a VMM writes them; sometimes not.
			if rapid.IntRange(0, 4).Draw(t, label+" jump") == 0 {
				next[r.Source] = uint32(rapid.IntRange(0, 1000).Draw(t, label+" at"))
			}
			r.At = next[r.Source]
			next[r.Source] += n
		}
		if err := b.Add(r); err != nil {
			t.Fatal(err)
		}
		at += n
	}
}

func TestMergeEqualsNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parent := drawIndex(t, "parent", true, 2, 3)
		delta := drawIndex(t, "delta", false, 4)
		want := modelOf(parent)
		for page, p := range modelOf(delta) {
			want[page] = p
		}
		got := Merge(parent, delta)
		if err := got.Validate([]uint32{1100, 1100, 1100}); err != nil {
			t.Fatal(err)
		}
		if m := modelOf(got); !reflect.DeepEqual(m, want) {
			t.Fatalf("merge of %v and %v is %v", parent.Runs, delta.Runs, got.Runs)
		}
		for i := 1; i < len(got.Runs); i++ {
			if joins(got.Runs[i-1], got.Runs[i]) {
				t.Fatalf("runs %v and %v are one", got.Runs[i-1], got.Runs[i])
			}
		}
	})
}

// Folding two deltas first, or each into the parent in turn, is the same.
func TestMergeIsAssociative(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawIndex(t, "a", true)
		b := drawIndex(t, "b", false, 2)
		c := drawIndex(t, "c", false, 3)
		left, right := Merge(Merge(a, b), c), Merge(a, Merge(b, c))
		if !reflect.DeepEqual(modelOf(left), modelOf(right)) {
			t.Fatalf("%v and %v", left.Runs, right.Runs)
		}
	})
}

func TestCodecRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawIndex(t, "x", true, 2, 3, 900)
		y, err := Decode(x.Encode(), testPages)
		if err != nil {
			t.Fatal(err)
		}
		if y.Pages != x.Pages || len(x.Runs) != len(y.Runs) || len(x.Runs) > 0 && !reflect.DeepEqual(x.Runs, y.Runs) {
			t.Fatalf("%v came back as %v", x, y)
		}
	})
}

func TestLookupAndRangeEqualNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawIndex(t, "x", true, 2, 3)
		m := modelOf(x)
		for page := range uint32(testPages) {
			r, ok := x.Lookup(page)
			p, want := m[page]
			if ok != want || ok && (r.First > page || r.End() <= page || r.cut(page, 1).At != p.at || r.Source != p.source) {
				t.Fatalf("page %d of %v: %v, %v", page, x.Runs, r, ok)
			}
		}
		first := uint32(rapid.IntRange(0, testPages).Draw(t, "first"))
		count := uint32(rapid.IntRange(0, testPages).Draw(t, "range"))
		part := &Index{Pages: testPages}
		for r := range x.Range(first, count) {
			part.Runs = append(part.Runs, r)
		}
		got := modelOf(part)
		for page, p := range m {
			in := page >= first && page < first+count
			if q, ok := got[page]; ok != in || in && q != p {
				t.Fatalf("range %d+%d of %v is %v", first, count, x.Runs, part.Runs)
			}
		}
	})
}

func TestFullCoversEveryPageOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawIndex(t, "x", true, 2)
		var at uint32
		for r := range x.Full() {
			if r.First != at {
				t.Fatalf("run %v after page %d", r, at)
			}
			at = r.End()
		}
		if at != x.Pages {
			t.Fatalf("ends at %d", at)
		}
	})
}

// After the planned copies, every page has the bytes it had.
func TestCompactKeepsEveryPage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := drawIndex(t, "x", true, 2, 3, 4)
		y, moves := Compact(x, func(s uint16) bool { return s == 3 }, 7)
		file := map[uint32]place{} // the new file's pages
		var to uint32
		for _, m := range moves {
			if m.To != to || m.Count == 0 {
				t.Fatalf("move %v at page %d", m, to)
			}
			for i := range m.Count {
				file[m.To+i] = place{m.Source, m.From + i}
			}
			to += m.Count
		}
		if err := y.Validate([]uint32{0, 1100, 0, 0, 0, to}); err != nil {
			t.Fatal(err)
		}
		got := modelOf(y)
		for page, p := range got {
			if p.source == 7 {
				got[page] = file[p.at]
			}
		}
		if !reflect.DeepEqual(got, modelOf(x)) {
			t.Fatalf("%v became %v by %v", x.Runs, y.Runs, moves)
		}
	})
}

func TestBuilderRefuses(t *testing.T) {
	for name, r := range map[string]Run{
		"empty":        {First: 20, Count: 0},
		"out of order": {First: 9, Count: 1},
		"past the end": {First: 90, Count: 11},
		"overflow":     {First: 1<<32 - 1, Count: 2},
		"base moved":   {First: 20, Count: 1, Source: Base, At: 3},
		"zero with at": {First: 20, Count: 1, At: 3},
		"far":          {First: 20, Count: 2, Source: 2, At: 1<<32 - 1},
	} {
		b := NewBuilder(100)
		if err := b.Add(Run{First: 5, Count: 5}); err != nil {
			t.Fatal(err)
		}
		if err := b.Add(r); !errors.Is(err, ErrIndex) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
