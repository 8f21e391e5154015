package disk

import (
	"bytes"
	"errors"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/fxamacker/cbor/v2"
)

// pile is a disk of three layers with something in each.
func pile(t testing.TB) (*Disk, []*os.File) {
	t.Helper()
	files := []*os.File{file(t, fill(1, 8*BlockSize)), file(t, nil), file(t, nil)}
	d := mustOpen(t, false, files[:2]...)
	writeAt(t, d, BlockSize, fill(2, 3*BlockSize))
	if err := d.Zero(6*BlockSize, BlockSize); err != nil {
		t.Fatal(err)
	}
	if err := d.Freeze(files[2]); err != nil {
		t.Fatal(err)
	}
	writeAt(t, d, 3*BlockSize, fill(3, 2*BlockSize))
	return d, files
}

func runs(list ...Run) (r Runs) {
	for _, run := range list {
		r = r.put(run)
	}
	return r
}

// edit changes run i.
func edit(r Runs, i int, change func(*Run)) {
	run := r.At(i)
	change(&run)
	copy(r[i*runBytes:], Runs(nil).put(run))
}

func TestStateRoundTrip(t *testing.T) {
	d, files := pile(t)
	s := d.State()
	want := State{
		Size: 8 * BlockSize, Layers: 3,
		Under: runs(Run{First: 1, Count: 3, Layer: 1}, Run{First: 6, Count: 1, Layer: 1, Zero: true}),
		Top:   runs(Run{First: 3, Count: 2, Layer: 2}),
	}
	if !reflect.DeepEqual(s, want) {
		t.Fatalf("state %+v, want %+v", s, want)
	}
	raw, err := cbor.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back State
	if err := cbor.Unmarshal(raw, &back); err != nil {
		t.Fatal(err)
	}
	restored, err := Restore(files, false, back)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readAt(t, restored, 0, 8*BlockSize), readAt(t, d, 0, 8*BlockSize)) {
		t.Fatal("the restored disk has other bytes")
	}
	if err := restored.Drop(); err != nil {
		t.Fatal(err)
	}
	if got := readAt(t, restored, 3*BlockSize, 2*BlockSize); !bytes.Equal(got, append(fill(2, BlockSize), fill(1, BlockSize)...)) {
		t.Fatal("a restored top cannot be dropped")
	}
}

// Every field of a state, changed to something that cannot be.
func TestRestoreRefuses(t *testing.T) {
	d, files := pile(t)
	good := d.State()
	for name, change := range map[string]func(*State){
		"size":                func(s *State) { s.Size += BlockSize },
		"layers":              func(s *State) { s.Layers++ },
		"empty run":           func(s *State) { edit(s.Under, 0, func(r *Run) { r.Count = 0 }) },
		"run beyond the end":  func(s *State) { edit(s.Under, 1, func(r *Run) { r.Count = 3 }) },
		"huge run":            func(s *State) { edit(s.Under, 1, func(r *Run) { r.Count = maxCount }) },
		"overlap":             func(s *State) { edit(s.Under, 1, func(r *Run) { r.First = 2 }) },
		"order":               func(s *State) { s.Under = runs(s.Under.At(1), s.Under.At(0)) },
		"under in the top":    func(s *State) { edit(s.Under, 0, func(r *Run) { r.Layer = 2 }) },
		"top in a lower one":  func(s *State) { edit(s.Top, 0, func(r *Run) { r.Layer = 1 }) },
		"layer that is none":  func(s *State) { edit(s.Top, 0, func(r *Run) { r.Layer = 9 }) },
		"data that is not in": func(s *State) { edit(s.Under, 1, func(r *Run) { r.Zero = false }) },
		"part of a run":       func(s *State) { s.Under = s.Under[:9] },
	} {
		t.Run(name, func(t *testing.T) {
			s := good
			s.Under, s.Top = slices.Clone(good.Under), slices.Clone(good.Top)
			change(&s)
			if _, err := Restore(files, false, s); !errors.Is(err, ErrState) {
				t.Fatalf("got %v, want %v", err, ErrState)
			}
		})
	}
	single := State{Size: BlockSize, Layers: 1, Top: runs(Run{Count: 1})}
	if _, err := Restore([]*os.File{file(t, fill(1, BlockSize))}, false, single); !errors.Is(err, ErrState) {
		t.Fatalf("index for a single file: %v", err)
	}
}

// A frozen pile can be the read-only disk of another machine.
func TestRestoreReadOnly(t *testing.T) {
	d, files := pile(t)
	if err := d.Freeze(file(t, nil)); err != nil {
		t.Fatal(err)
	}
	s := d.State()
	s.Layers = len(files)
	r, err := Restore(files, true, s)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readAt(t, r, 0, 8*BlockSize), readAt(t, d, 0, 8*BlockSize)) {
		t.Fatal("the read-only disk has other bytes")
	}
}

func FuzzRestore(f *testing.F) {
	d, _ := pile(f)
	raw, err := cbor.Marshal(d.State())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte{0xa0})
	_, files := pile(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		var s State
		if cbor.Unmarshal(raw, &s) != nil {
			return
		}
		d, err := Restore(files, false, s)
		if err != nil {
			if !errors.Is(err, ErrState) {
				t.Fatalf("error %v does not wrap ErrState", err)
			}
			return
		}
		readAt(t, d, 0, int(d.Size()))
		again, err := Restore(files, false, d.State())
		if err != nil {
			t.Fatalf("saved state of a restored disk: %v", err)
		}
		if !bytes.Equal(readAt(t, d, 0, int(d.Size())), readAt(t, again, 0, int(d.Size()))) {
			t.Fatal("restored twice, the disk differs")
		}
	})
}
