package plan

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"thaw/snapshot/layer"
)

const (
	idA = "0123456789abcdef0123456789abcdef"
	idB = "fedcba9876543210fedcba9876543210"
)

// folders has idA to be installed by the plan in dir, and idB to be removed.
func folders(t *testing.T, at func(step string) error) (f Folders, dir string) {
	root := t.TempDir()
	f = Folders{Work: filepath.Join(root, "work"), Into: filepath.Join(root, "snapshots"), At: at}
	for _, d := range []string{f.Work, f.Into, filepath.Join(f.Into, idB)} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := f.New()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, idA), 0o700); err != nil {
		t.Fatal(err)
	}
	return f, dir
}

func names(t *testing.T, dir string) (out string) {
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		out += d.Name()
	}
	return out
}

// A fault at each step: what was decided is finished later, what was not never happens.
func TestPlanIsOneStep(t *testing.T) {
	fault := errors.New("fault")
	for at := 1; ; at++ {
		n := 0
		f, dir := folders(t, func(string) error {
			if n++; n == at {
				return fault
			}
			return nil
		})
		decided, err := f.Decide(dir, Plan{Install: []string{idA}, Remove: []string{idB}})
		if reached := n >= at; reached != errors.Is(err, fault) {
			t.Fatalf("step %d: %v", at, err)
		}
		f.At = func(string) error { return nil }
		if err := f.Finish(); err != nil {
			t.Fatal(err)
		}
		want := idB
		if decided {
			want = idA
		}
		if got := names(t, f.Into); got != want {
			t.Errorf("step %d: %s, not %s", at, got, want)
		}
		if n < at {
			return
		}
	}
}

func TestDamagedPlan(t *testing.T) {
	for name, text := range map[string]string{"json": "{", "id": `{"remove":["../x"]}`} {
		f, _ := folders(t, nil)
		dir := filepath.Join(f.Work, prefix+idA)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, planName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := f.Finish(); !errors.Is(err, layer.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
