package disk

import (
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
)

func TestRunsAppend(t *testing.T) {
	var r Runs
	for _, run := range []Run{
		{First: 1, Count: 2, Layer: 3}, {First: 3, Count: 1, Layer: 3}, // joined
		{First: 4, Count: 1, Layer: 3, Zero: true}, {First: 9, Count: 0, Layer: 1},
		{First: 10, Count: maxCount + 5, Layer: MaxLayers - 1}, // in two
		{First: 10 + maxCount + 5, Count: 1, Layer: MaxLayers - 1},
	} {
		r = r.Append(run)
	}
	want := []Run{
		{First: 1, Count: 3, Layer: 3}, {First: 4, Count: 1, Layer: 3, Zero: true},
		{First: 10, Count: maxCount, Layer: MaxLayers - 1}, {First: 10 + maxCount, Count: 6, Layer: MaxLayers - 1},
	}
	var got []Run
	for i := range r.Len() {
		got = append(got, r.At(i))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("runs %+v, want %+v", got, want)
	}
}

// paint returns the owner of each block.
func paint(r Runs, blocks int) []owner {
	p := make([]owner, blocks)
	for i := range r.Len() {
		for k := range r.At(i).Count {
			p[r.At(i).First+k] = r.At(i).owner()
		}
	}
	return p
}

// Random runs over others are what painting them one after the other gives, in
// as few runs as can be.
func TestRunsOver(t *testing.T) {
	const blocks = 200
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(layer int) (r Runs) {
		for at := uint32(rng.IntN(20)); at < blocks; {
			n := min(uint32(1+rng.IntN(30)), blocks-at)
			r = r.Append(Run{First: at, Count: n, Layer: uint16(layer - rng.IntN(2)), Zero: rng.IntN(3) == 0})
			at += n + uint32(rng.IntN(2)*rng.IntN(25))
		}
		return r
	}
	for range 2000 {
		under, top := random(2), random(4)
		want := paint(under, blocks)
		for block, o := range paint(top, blocks) {
			if o != 0 {
				want[block] = o
			}
		}
		merged := top.Over(under)
		if got := paint(merged, blocks); !reflect.DeepEqual(got, want) {
			t.Fatalf("owners %v, want %v", got, want)
		}
		var few Runs
		for block, o := range want {
			if o != 0 {
				few = few.Append(Run{First: uint32(block), Count: 1, Layer: uint16(o.layer()), Zero: o.zero()})
			}
		}
		if !reflect.DeepEqual(merged, few) {
			t.Fatalf("runs %x, want %x", merged, few)
		}
	}
}

// A rollback to the last freeze takes the index over; to any other state, or with
// other files, it does not.
func TestRewind(t *testing.T) {
	d, files := pile(t)
	if err := d.Drop(); err != nil {
		t.Fatal(err)
	}
	frozen := d.State()
	before := readAt(t, d, 0, 8*BlockSize)
	dirty := func(d *Disk) {
		writeAt(t, d, 2*BlockSize, fill(9, 3*BlockSize))
		if err := d.Zero(7*BlockSize, BlockSize); err != nil {
			t.Fatal(err)
		}
	}
	dirty(d)
	other := frozen
	other.Under = runs(Run{First: 1, Count: 3, Layer: 1})
	for name, r := range map[string]*Disk{
		"other index":       Rewind(d, files, false, other),
		"with claims":       Rewind(d, files, false, d.State()),
		"other lower layer": Rewind(d, []*os.File{files[0], file(t, nil), files[2]}, false, frozen),
		"layer less":        Rewind(d, files[:2], false, frozen),
		"read only":         Rewind(d, files, true, frozen),
	} {
		if r != nil {
			t.Errorf("%s: rewound", name)
		}
	}
	for _, top := range []*os.File{files[2], file(t, nil)} {
		r := Rewind(d, []*os.File{files[0], files[1], top}, false, frozen)
		if r == nil {
			t.Fatal("not rewound")
		}
		if got := readAt(t, r, 0, 8*BlockSize); !reflect.DeepEqual(got, before) {
			t.Error("the disk has other bytes than at the freeze")
		}
		if s := r.State(); !reflect.DeepEqual(s, frozen) {
			t.Errorf("state %+v, was %+v", s, frozen)
		}
		dirty(r)
		if r.Written() != 4 {
			t.Errorf("%d blocks written", r.Written())
		}
		d = r
	}
	single := mustOpen(t, true, files[0])
	if r := Rewind(single, files[:1], true, single.State()); r == nil {
		t.Error("a read-only image is opened anew")
	}
}
