package api

import (
	"errors"
	"os"
	"strings"
	"testing"
)

func FuzzCheckPath(f *testing.F) {
	for _, s := range []string{"a/b.txt", "../x", "a//b", "/a", "a\\b", "\xff", "é", "\u202e", strings.Repeat("a/", 600)} {
		f.Add(s)
	}
	root := f.TempDir()
	f.Fuzz(func(t *testing.T, p string) {
		if CheckPath(p) != nil {
			return
		}
		r, err := os.OpenRoot(root)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		// A path that passes stays inside its root: os.Root refuses those that do not.
		if _, err := r.Stat(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%q: %v", p, err)
		}
	})
}
