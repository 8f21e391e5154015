package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden archive of a version that has none")

// goldenContent is what an archive of this version must bring back.
type goldenContent struct {
	Memory []string `json:"memory"` // SHA-256 of each snapshot's memory, parents first
	Disks  []string `json:"disks"`  // in hex
}

// makeGolden exports a template and two checkpoints, one of which was merged.
func makeGolden(t *testing.T, path string) {
	s := open(t, t.TempDir())
	m := newMachine(t, 61)
	var want goldenContent
	note := func(id string) string {
		sum := sha256.Sum256(m.mem)
		want.Memory, want.Disks = append(want.Memory, hex.EncodeToString(sum[:])), append(want.Disks, hex.EncodeToString(m.disk))
		return id
	}
	base := note(m.mustSave(s, ""))
	m.run()
	first := m.mustSave(s, base)
	m.run()
	second := note(m.mustSave(s, first))
	if _, err := s.Merge(context.Background(), second); err != nil {
		t.Fatal(err)
	}
	m.run()
	third := note(m.mustSave(s, second))
	var w bytes.Buffer
	if err := s.Export(context.Background(), third, &w); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, w.Bytes(), 0o644), os.WriteFile(path+".json", b, 0o644)); err != nil {
		t.Fatal(err)
	}
}

// Archives of every version can be imported, and bring what was exported. That one has
// state files, indexes, lists of digests and manifests of its version in it. (How they are
// compressed may change, so the archive that this program writes is not compared.)
func TestGoldenArchives(t *testing.T) {
	path := filepath.Join("testdata", "v1.archive")
	if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
		makeGolden(t, path)
	}
	files, err := filepath.Glob("testdata/v*.archive")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := os.ReadFile(name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var want, got goldenContent
		if err := json.Unmarshal(b, &want); err != nil {
			t.Fatal(err)
		}
		s := open(t, t.TempDir())
		id, err := s.Import(context.Background(), f, ImportOptions{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for id != "" {
			sum := sha256.Sum256(memoryOf(t, s, id))
			got.Memory, got.Disks = append([]string{hex.EncodeToString(sum[:])}, got.Memory...), append([]string{hex.EncodeToString([]byte(top(t, s, id)))}, got.Disks...)
			m, err := s.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			id = m.Parent
		}
		if strings.Join(got.Memory, " ") != strings.Join(want.Memory, " ") || strings.Join(got.Disks, " ") != strings.Join(want.Disks, " ") {
			t.Errorf("%s: %+v, not %+v", name, got, want)
		}
	}
}
