package checkout

import (
	"os"
	"path/filepath"
	"testing"
)

// program makes an empty file below a tree with a go.mod.
func program(t *testing.T, mod, name string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "go.mod"), []byte(mod), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKey(t *testing.T) {
	const mod = "module thaw\n\ngo 1.26.0\n"
	a, b := program(t, mod, "bin/thaw"), program(t, mod, "bin/thaw")
	if len(keyOf(a)) != 2*keyBytes || keyOf(a) == keyOf(b) {
		t.Errorf("two trees: %q and %q", keyOf(a), keyOf(b))
	}
	// All programs of a tree agree, and a link to one is that one.
	other := filepath.Join(filepath.Dir(a), "thawd")
	if err := os.WriteFile(other, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "thaw")
	if err := os.Symlink(a, link); err != nil {
		t.Fatal(err)
	}
	if keyOf(other) != keyOf(a) || keyOf(link) != keyOf(a) {
		t.Errorf("one tree: %q, %q and %q", keyOf(a), keyOf(other), keyOf(link))
	}
	if k := keyOf(program(t, "module thawing\n", "bin/x")); k != "" {
		t.Errorf("another module's program: %q", k)
	}
	if k := keyOf(filepath.Join(t.TempDir(), "gone")); k != "" {
		t.Errorf("no program: %q", k)
	}
}
