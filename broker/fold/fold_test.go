package fold

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"thaw/snapshot/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func itoa(fd uintptr) string { return strconv.Itoa(int(fd)) }

// A chain keeps every disk's bytes, and needs few files at any depth, while machines go
// on from snapshots that were folded, merged or read again since they were restored.
func TestChainKeepsItsDisks(t *testing.T) {
	root := t.TempDir()
	r := newRig(t, root)
	rng := rand.New(rand.NewPCG(4, 4))
	var ids []string
	disks := map[string][]byte{}
	keep := func(id string) {
		ids = append(ids, id)
		disks[id] = bytes.Clone(r.flat)
	}
	r.write(3)
	keep(r.mustSave(""))
	for i := range 140 {
		r.write(1 + rng.IntN(3))
		keep(r.mustSave(ids[len(ids)-1]))
		at := ids[len(ids)-1]
		switch rng.IntN(6) {
		case 0: // a machine that was restored goes on
			r.disk, r.files = r.restore(at)
		case 1: // merged under a machine that runs on it
			if i%3 == 0 {
				if _, err := r.s.Merge(context.Background(), at); err != nil {
					t.Fatal(err)
				}
			}
		case 2:
			id := ids[rng.IntN(len(ids))]
			r.check(id, disks[id])
		case 3:
			if i%20 == 0 {
				r.s.Close()
				r.s = open(t, root)
			}
		}
	}
	for _, id := range ids {
		r.check(id, disks[id])
	}
}

// Once a checkpoint is merged, what was between it and the template can be deleted.
func TestMergeFreesWhatIsBetween(t *testing.T) {
	ctx := context.Background()
	root := t.TempDir()
	r := newRig(t, root)
	ids := []string{r.mustSave("")}
	var disks [][]byte
	for range 6 {
		disks = append(disks, bytes.Clone(r.flat))
		r.write(5)
		ids = append(ids, r.mustSave(ids[len(ids)-1]))
	}
	disks = append(disks, bytes.Clone(r.flat))
	m, err := r.s.Merge(ctx, ids[6])
	if err != nil {
		t.Fatal(err)
	}
	if m.Parent != ids[0] || len(m.Disks[1].Layers) != 3 || len(m.Needs()) != 1 {
		t.Fatalf("%+v", m)
	}
	// The machine knows nothing of it, and goes on.
	r.write(5)
	next := r.mustSave(ids[6])
	after := bytes.Clone(r.flat)
	for i := 5; i > 0; i-- {
		if err := r.s.Delete(ids[i], false); err != nil {
			t.Fatal(err)
		}
	}
	r.check(ids[0], disks[0])
	r.check(ids[6], disks[6])
	r.check(next, after)
	var w bytes.Buffer
	if err := r.s.Export(ctx, next, &w); err != nil {
		t.Fatal(err)
	}
	id, err := r.s.Import(ctx, bytes.NewReader(w.Bytes()), store.ImportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.check(id, after)
	r.s.Close()
	r.s = open(t, root)
	r.check(ids[6], disks[6])
	r.check(next, after)
	r.check(id, after)
}

// A state whose disks are not the machine's is refused, and leaves nothing.
func TestRefuses(t *testing.T) {
	r := newRig(t, t.TempDir())
	base := r.mustSave("")
	good := r.state()
	d := Disks{}
	for name, layers := range map[string]map[string]int{
		"fewer disks": {"vdb": 1},
		"other disk":  {"vda": 1, "vdc": 1},
		"layers":      {"vda": 1, "vdb": 2},
		"image":       {"vda": 2, "vdb": 1},
	} {
		if _, err := d.Rebase(good, nil, layers); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	same, err := d.Rebase(good, nil, map[string]int{"vda": 1, "vdb": 1})
	if err != nil || !bytes.Equal(same, good) {
		t.Errorf("a state that fits was changed: %v", err)
	}
	if _, err := d.Rebase(good, good[:5000], map[string]int{"vda": 1, "vdb": 1}); !errors.Is(err, ErrState) {
		t.Errorf("damaged parent: %v", err)
	}
	for name, c := range map[string]struct {
		id          string
		first, last int
		out         *os.File
	}{
		"no such disk": {"vdx", 1, 2, nil},
		"the bottom":   {"vdb", 0, 2, nil},
		"beyond":       {"vdb", 1, 3, nil},
		"none":         {"vdb", 1, 1, nil},
		"no files":     {"vdb", 1, 2, r.file()},
	} {
		if _, err := d.Fold(context.Background(), good, c.id, nil, c.first, c.last, c.out); !errors.Is(err, ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The VMM says that another disk was frozen twice.
	r.files = append(r.files, r.file())
	if err := r.disk.Freeze(r.files[len(r.files)-1]); err != nil {
		t.Fatal(err)
	}
	if _, err := r.save(""); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("template of more layers than it says: %v", err)
	}
	if err := r.s.Delete(base, false); err != nil {
		t.Error(err)
	}
}

func FuzzFold(f *testing.F) {
	r := newRig(f, f.TempDir())
	r.write(10)
	parent := r.state()
	r.files = append(r.files, r.file())
	if err := r.disk.Freeze(r.files[len(r.files)-1]); err != nil {
		f.Fatal(err)
	}
	m, err := openState(r.state())
	if err != nil {
		f.Fatal(err)
	}
	section, err := m.file.Section("machine")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(section)
	f.Add(section[:len(section)/2])
	f.Fuzz(func(t *testing.T, section []byte) {
		state := stateOf(t, section)
		for _, below := range [][]byte{nil, parent} {
			b, err := Disks{}.Rebase(state, below, map[string]int{"vda": 1, "vdb": 1})
			if err != nil {
				if !errors.Is(err, ErrState) {
					t.Fatalf("untyped error %v", err)
				}
				continue
			}
			if _, err := openState(b); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := (Disks{}).Fold(context.Background(), state, "vdb", r.files, 1, 2, nil); err == nil {
			if _, err := openState(b); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, ErrState) {
			t.Fatalf("untyped error %v", err)
		}
	})
}
