package archive

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

const id = "0123456789abcdef0123456789abcdef"

func sample() List {
	d := strings.Repeat("0a", 32)
	return List{Version: Version, Snapshots: []Snapshot{{ID: id, Entries: []Entry{
		{Name: "manifest.json", Size: 900, Digest: d}, {Name: "state", Size: 4096, Digest: d},
		{Name: "memory.sum", Size: 56, Digest: d}, {Name: "memory", Size: 0, Digest: d},
	}}}}
}

func TestDecode(t *testing.T) {
	for name, edit := range map[string]func(l *List){
		"":               func(*List) {},
		"version":        func(l *List) { l.Version++ },
		"none":           func(l *List) { l.Snapshots = nil },
		"too many":       func(l *List) { l.Snapshots = make([]Snapshot, 3) },
		"twice":          func(l *List) { l.Snapshots = append(l.Snapshots, l.Snapshots[0]) },
		"id":             func(l *List) { l.Snapshots[0].ID = "../x" },
		"digest":         func(l *List) { l.Snapshots[0].Entries[1].Digest = "0a" },
		"negative":       func(l *List) { l.Snapshots[0].Entries[1].Size = -1 },
		"too long":       func(l *List) { l.Snapshots[0].Entries[1].Size = 1 << 41 },
		"sum too long":   func(l *List) { l.Snapshots[0].Entries[1].Size = 1 << 20 },
		"entries":        func(l *List) { l.Snapshots[0].Entries = make([]Entry, 1000) },
		"overflow of it": func(l *List) { l.Snapshots[0].Entries[1].Size = 1<<63 - 1 },
	} {
		l := sample()
		edit(&l)
		b, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(b, 2, 1<<20); (err == nil) != (name == "") || err != nil && !errors.Is(err, ErrArchive) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	b, err := json.Marshal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := Decode(b, 100, 1<<40)
		if err != nil {
			if !errors.Is(err, ErrArchive) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if len(l.Snapshots) == 0 || len(l.Snapshots) > 100 {
			t.Fatal("bound broken")
		}
	})
}
