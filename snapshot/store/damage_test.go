package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
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

// places are where a file is damaged: its ends, each of its first bytes, and every few.
func places(n int) []int {
	at := map[int]bool{}
	for i := range min(n, 64) {
		at[i], at[n-1-i] = true, true
	}
	for i := 0; i < n; i += max(1, n/100) {
		at[i] = true
	}
	return slices.Sorted(maps.Keys(at))
}

// A byte flipped anywhere in any file of a chain is found before a guest runs, and so
// are a file that is too short, too long, missing, or no file.
func TestEveryFlipIsFound(t *testing.T) {
	root := memoryDir(t)
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
		for _, at := range places(len(good)) {
			bad := append([]byte(nil), good...)
			bad[at] ^= 1 << (at % 8)
			try(t, root, []string{base, id}, path, bad, name, at)
		}
		for _, bad := range [][]byte{nil, good[:len(good)/2], good[:len(good)-1], append(good[:len(good):len(good)], 0)} {
			try(t, root, []string{base, id}, path, bad, name+" of another length", len(bad))
		}
		away := filepath.Join(root, "away")
		for what, replace := range map[string]func() error{
			"missing":  func() error { return nil },
			"a link":   func() error { return os.Symlink(away, path) },
			"a folder": func() error { return os.Mkdir(path, 0o700) },
		} {
			if err := errors.Join(os.WriteFile(path, good, 0o600), os.Rename(path, away), replace()); err != nil {
				t.Fatal(err)
			}
			try(t, root, []string{base, id}, "", nil, name+" is "+what, 0)
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = open(t, root)
	if err := restore(s, id); err != nil {
		t.Fatal(err)
	}
}

// The same of an archive, as it is and as what is in it: an error with a type, and nothing
// in the store; or, where the byte means nothing, all of what was exported.
func TestEveryFlipOfAnArchiveIsFound(t *testing.T) {
	source, whole, entries := exported(t)
	s := open(t, memoryDir(t))
	ctx := context.Background()
	want := memoryOf(t, source, entries[len(entries)-1].header.Name[:manifest.IDLength])
	found := 0
	try := func(what string, b []byte) {
		t.Helper()
		id, err := s.Import(ctx, bytes.NewReader(b), ImportOptions{})
		if err != nil {
			found++
			if !errors.Is(err, ErrArchive) && !errors.Is(err, ErrDamaged) {
				t.Errorf("%s: untyped error %v", what, err)
			}
			if n := len(s.List("")); n != 0 {
				t.Fatalf("%s: %d snapshots", what, n)
			}
			clean(t, s)
			return
		}
		if !bytes.Equal(memoryOf(t, s, id), want) {
			t.Errorf("%s: other memory", what)
		}
		m, err := s.Get(id)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(m.Parent, true); err != nil {
			t.Fatal(err)
		}
	}
	at := places(len(whole))
	for _, i := range at {
		bad := bytes.Clone(whole)
		bad[i] ^= 1 << (i % 8)
		try(fmt.Sprintf("byte %d of %d", i, len(bad)), bad)
		try(fmt.Sprintf("cut at %d of %d", i, len(bad)), whole[:i])
	}
	if found < 2*len(at)*9/10 {
		t.Errorf("only %d of %d were found", found, 2*len(at))
	}
	for n, e := range entries {
		for _, i := range places(len(e.body)) {
			if len(e.body) == 0 || i%11 != 0 {
				continue
			}
			bad := slices.Clone(entries)
			bad[n].body = bytes.Clone(e.body)
			bad[n].body[i] ^= 1 << (i % 8)
			before := found
			try(fmt.Sprintf("byte %d of %s", i, e.header.Name), pack(t, bad))
			if found == before && n > 0 {
				t.Errorf("byte %d of %s: not found", i, e.header.Name)
			}
		}
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
