package fold

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden file of a version that has none")

// State files of every version can be folded and moved: a template's, which has two
// layers, and its checkpoint's.
func TestGoldenStates(t *testing.T) {
	r := newRig(t, t.TempDir())
	r.write(9)
	r.mustSave("")
	base := r.state()
	r.write(9)
	r.files = append(r.files, r.file())
	if err := r.disk.Freeze(r.files[len(r.files)-1]); err != nil {
		t.Fatal(err)
	}
	next := r.state()
	for name, b := range map[string][]byte{"v1.0.template.state": base, "v1.0.checkpoint.state": next} {
		path := filepath.Join("testdata", name)
		if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(indexOf(t, b), indexOf(t, want)) {
			t.Errorf("%s: the index of a disk has other bytes", name)
		}
	}
	templates, err := filepath.Glob("testdata/v*.template.state")
	if err != nil || len(templates) == 0 {
		t.Fatalf("%v, %v", templates, err)
	}
	for _, name := range templates {
		parent, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		state, err := os.ReadFile(name[:len(name)-len("template.state")] + "checkpoint.state")
		if err != nil {
			t.Fatal(err)
		}
		state, err = Disks{}.Rebase(state, parent, map[string]int{"vda": 1, "vdb": 2})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if state, err = (Disks{}).Fold(context.Background(), state, "vdb", nil, 1, 3, nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, err := openState(state)
		if err != nil || m.disks["vdb"].index.Layers != 3 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

// indexOf is the encoded index of the writable disk.
func indexOf(t *testing.T, state []byte) []byte {
	t.Helper()
	m, err := openState(state)
	if err != nil {
		t.Fatal(err)
	}
	return m.disks["vdb"].block[fieldDisk]
}
