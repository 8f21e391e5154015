package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"thaw/snapshot/manifest"
)

// restore does all that a restore does with a snapshot's files.
func restore(s *Store, id string) error {
	ctx := context.Background()
	c, err := s.Resolve(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	for _, l := range c.Memory {
		f, err := l.Load(ctx, false)
		if err != nil {
			return err
		}
		f.Close()
	}
	return nil
}

// A byte flipped anywhere in any file of a chain is found before a guest runs. Long
// files are tried at some bytes of each region.
func TestEveryFlipIsFound(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	m := newMachine(t, 11)
	base := m.mustSave(s, "")
	m.run()
	m.mem[5*page]++
	id := m.mustSave(s, base)
	if err := restore(s, id); err != nil {
		t.Fatal(err)
	}
	s.Close()
	files, err := filepath.Glob(filepath.Join(root, "snapshots", "*", "*"))
	if err != nil || len(files) != 2*7 {
		t.Fatalf("files %v, %v", files, err)
	}
	for _, path := range files {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		if name == manifest.FileName {
			continue // TestManifestIsStrict
		}
		step := max(1, len(good)/15)
		for at := 0; at < len(good); at += step {
			bad := append([]byte(nil), good...)
			bad[at] ^= 1 << (at % 8)
			try(t, root, []string{base, id}, path, bad, name, at)
		}
		try(t, root, []string{base, id}, path, good[:len(good)-1], name, -1)
		try(t, root, []string{base, id}, path, append(good[:len(good):len(good)], 0), name, -2)
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, path+".away"); err != nil {
			t.Fatal(err)
		}
		try(t, root, []string{base, id}, "", nil, name+" missing", 0)
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, root)
	if err := restore(s, id); err != nil {
		t.Fatal(err)
	}
}

func try(t *testing.T, root string, ids []string, path string, b []byte, name string, at int) {
	t.Helper()
	if path != "" {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Open(Options{Root: root, Folder: testFolder{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := false
	for _, id := range ids { // the template's state and disk are no part of the checkpoint
		err := restore(s, id)
		if err != nil && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s at %d: untyped error %v", name, at, err)
		}
		found = found || err != nil
	}
	if !found {
		t.Errorf("%s at %d: not found", name, at)
	}
}
