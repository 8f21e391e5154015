package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		if name == manifestName {
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
	s, err := Open(Options{Root: root})
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

func TestManifestIsStrict(t *testing.T) {
	s := open(t, t.TempDir())
	m := newMachine(t, 12)
	id := m.mustSave(s, m.mustSave(s, ""))
	good, err := os.ReadFile(filepath.Join(s.dir(id), manifestName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeManifest(good); err != nil {
		t.Fatal(err)
	}
	text := string(good)
	for name, edit := range map[string][2]string{
		"unknown field":   {`"version":1`, `"version":1,"evil":2`},
		"version":         {`"version":1`, `"version":2`},
		"id":              {`"id":"`, `"id":"x`},
		"kind":            {`"kind":"checkpoint"`, `"kind":"template"`},
		"file name":       {`"name":"index"`, `"name":"../index"`},
		"two states":      {`"name":"index"`, `"name":"state"`},
		"negative size":   {`"size":1048576`, `"size":-1`},
		"short digest":    {`"digest":"`, `"digest":"ab`},
		"capital digest":  {`"digest":"`, `"digest":"A`},
		"memory":          {`"memory_bytes":`, `"memory_bytes":1`},
		"no memory":       {`"memory":[`, `"memory":[],"labels":{},"merged":[`},
		"control in text": {`"tenant":"t"`, `"tenant":"\u0007"`},
		"long text":       {`"tenant":"t"`, `"tenant":"` + strings.Repeat("x", MaxText+1) + `"`},
		"trailing":        {"}\n", "}{}\n"},
		"not a manifest":  {text, "[]"},
	} {
		bad := strings.Replace(text, edit[0], edit[1], 1)
		if bad == text {
			t.Errorf("%s: nothing to edit", name)
		}
		if _, err := decodeManifest([]byte(bad)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	s := open(f, f.TempDir())
	m := newMachine(f, 13)
	id := m.mustSave(s, m.mustSave(s, ""))
	good, err := os.ReadFile(filepath.Join(s.dir(id), manifestName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decodeManifest(again); err != nil {
			t.Fatal(err)
		}
		m.needs()
	})
}
