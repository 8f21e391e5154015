package store

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"thaw/snapshot/archive"
)

// tarEntry is one entry of an archive in a test.
type tarEntry struct {
	header tar.Header
	body   []byte
}

// exported is the entries of an archive of a template and a checkpoint.
func exported(t testing.TB) (*Store, []byte, []tarEntry) {
	s := open(t, t.TempDir())
	m := newMachine(t, 31)
	base := m.mustSave(s, "")
	m.mem[7*page]++
	id := m.mustSave(s, base)
	var w bytes.Buffer
	if err := s.Export(context.Background(), id, &w); err != nil {
		t.Fatal(err)
	}
	z, err := zstd.NewReader(bytes.NewReader(w.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var entries []tarEntry
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return s, w.Bytes(), entries
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, tarEntry{*h, b})
	}
}

func pack(t testing.TB, entries []tarEntry) []byte {
	var w bytes.Buffer
	z, err := zstd.NewWriter(&w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	x := tar.NewWriter(z)
	for _, e := range entries {
		e.header.Size = int64(len(e.body))
		if e.header.Typeflag != tar.TypeReg {
			e.header.Size, e.body = 0, nil
		}
		if err := x.WriteHeader(&e.header); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Write(e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(x.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return w.Bytes()
}

// A hostile archive brings a typed error, and nothing into the store.
func TestImportRefuses(t *testing.T) {
	s, good, entries := exported(t)
	find := func(suffix string) int {
		for i, e := range entries {
			if strings.HasSuffix(e.header.Name, suffix) {
				return i
			}
		}
		t.Fatal("no entry " + suffix)
		return 0
	}
	list := func(edit func(l *archive.List)) func(e []tarEntry) []tarEntry {
		return func(e []tarEntry) []tarEntry {
			var l archive.List
			if err := json.Unmarshal(e[0].body, &l); err != nil {
				t.Fatal(err)
			}
			edit(&l)
			e[0].body, _ = json.Marshal(l)
			return e
		}
	}
	body := func(suffix string, edit func(b []byte) []byte) func(e []tarEntry) []tarEntry {
		return func(e []tarEntry) []tarEntry {
			i := find(suffix)
			e[i].body = edit(bytes.Clone(e[i].body))
			return e
		}
	}
	flip := func(b []byte) []byte { b[len(b)/2] ^= 1; return b }
	cases := map[string]func(e []tarEntry) []tarEntry{
		"path traversal": func(e []tarEntry) []tarEntry { e[3].header.Name = "../../" + e[3].header.Name; return e },
		"symlink": func(e []tarEntry) []tarEntry {
			e[2].header.Typeflag, e[2].header.Linkname = tar.TypeSymlink, "/etc/passwd"
			return e
		},
		"swapped":        func(e []tarEntry) []tarEntry { e[2], e[3] = e[3], e[2]; return e },
		"missing entry":  func(e []tarEntry) []tarEntry { return append(e[:2:2], e[3:]...) },
		"one more":       func(e []tarEntry) []tarEntry { return append(e, e[2]) },
		"nothing":        func(e []tarEntry) []tarEntry { return nil },
		"list only":      func(e []tarEntry) []tarEntry { return e[:1] },
		"half":           func(e []tarEntry) []tarEntry { return e[:len(e)/2] },
		"state":          body("/state", flip),
		"index":          body("/index", flip),
		"manifest":       body("/manifest.json", flip),
		"digests":        body("/memory.sum", flip),
		"memory":         body("/memory", flip),
		"memory short":   body("/memory", func(b []byte) []byte { return b[1:] }),
		"list is text":   func(e []tarEntry) []tarEntry { e[0].body = []byte("[]"); return e },
		"other version":  list(func(l *archive.List) { l.Version++ }),
		"no snapshots":   list(func(l *archive.List) { l.Snapshots = nil }),
		"child first":    list(func(l *archive.List) { l.Snapshots[0], l.Snapshots[1] = l.Snapshots[1], l.Snapshots[0] }),
		"parent missing": list(func(l *archive.List) { l.Snapshots = l.Snapshots[1:] }),
		"twice":          list(func(l *archive.List) { l.Snapshots[1] = l.Snapshots[0] }),
		"odd id":         list(func(l *archive.List) { l.Snapshots[0].ID = "../x" }),
		"huge entry":     list(func(l *archive.List) { l.Snapshots[0].Entries[1].Size = 1 << 50 }),
		"negative entry": list(func(l *archive.List) { l.Snapshots[0].Entries[1].Size = -1 }),
		"other name":     list(func(l *archive.List) { l.Snapshots[0].Entries[1].Name = "x" }),
	}
	before := len(s.List(""))
	refuse := func(name string, b []byte, o ImportOptions, want ...error) {
		t.Helper()
		_, err := s.Import(context.Background(), bytes.NewReader(b), o)
		ok := false
		for _, w := range want {
			ok = ok || errors.Is(err, w)
		}
		if !ok {
			t.Errorf("%s: %v", name, err)
		}
		clean(t, s)
		if n := len(s.List("")); n != before {
			t.Errorf("%s: %d snapshots", name, n)
		}
	}
	for name, edit := range cases {
		refuse(name, pack(t, edit(append([]tarEntry(nil), entries...))), ImportOptions{}, ErrArchive, ErrDamaged)
	}
	refuse("not an archive", []byte("hello"), ImportOptions{}, ErrArchive)
	refuse("cut", good[:len(good)/2], ImportOptions{}, ErrArchive, ErrDamaged)
	refuse("too many", good, ImportOptions{MaxSnapshots: 1}, ErrArchive)
	refuse("too long", good, ImportOptions{MaxBytes: 100}, ErrArchive)
	s.opts.MaxBytes = 1
	refuse("no room", good, ImportOptions{}, ErrNoSpace)
	s.opts.MaxBytes = 0
	if _, err := s.Import(context.Background(), bytes.NewReader(pack(t, entries)), ImportOptions{}); err != nil {
		t.Fatal(err)
	}
}

// FuzzImport changes one entry of an archive: which, where, and into what.
func FuzzImport(f *testing.F) {
	s, _, entries := exported(f)
	f.Add(uint8(1), uint32(10), []byte("x"))
	f.Add(uint8(3), uint32(4000), []byte{0xff})
	before := len(s.List(""))
	f.Fuzz(func(t *testing.T, which uint8, at uint32, b []byte) {
		e := append([]tarEntry(nil), entries...)
		i := int(which) % len(e)
		body := bytes.Clone(e[i].body)
		if len(body) > 0 {
			copy(body[int(at)%len(body):], b)
		}
		same := bytes.Equal(body, e[i].body)
		e[i].body = body
		id, err := s.Import(context.Background(), bytes.NewReader(pack(t, e)), ImportOptions{})
		if err == nil {
			if err := restore(s, id); err != nil {
				t.Fatalf("imported, but %v", err)
			}
			m, err := s.Get(id)
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(m.Parent, true); err != nil {
				t.Fatal(err)
			}
			return
		}
		if same || !errors.Is(err, ErrArchive) && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNoSpace) && !strings.Contains(err.Error(), "format:") {
			t.Fatal(err)
		}
		if n := len(s.List("")); n != before {
			t.Fatal(fmt.Sprint(n, " snapshots"))
		}
	})
}
