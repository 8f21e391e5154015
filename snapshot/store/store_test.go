package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thaw/snapshot/manifest"
)

func TestMain(m *testing.M) {
	if crashChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

// Every snapshot of a tree gives the memory and disk that its machine had, whatever
// was merged, deleted, exported and reopened meanwhile.
func TestTreeKeepsItsBytes(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir())
	m := newMachine(t, 1)
	mem, disk := map[string][]byte{}, map[string]string{}
	save := func(m *machine, parent string) string {
		id := m.mustSave(s, parent)
		mem[id], disk[id] = bytes.Clone(m.mem), string(m.disk)
		return id
	}
	check := func(what string) {
		t.Helper()
		clean(t, s)
		if n := len(s.List("t")); n != len(mem) {
			t.Fatalf("%s: %d snapshots, not %d", what, n, len(mem))
		}
		for id := range mem {
			if !bytes.Equal(memoryOf(t, s, id), mem[id]) {
				t.Fatalf("%s: memory of %s differs", what, id)
			}
			if got := top(t, s, id); got != disk[id] {
				t.Fatalf("%s: disk of %s is %q, not %q", what, id, got, disk[id])
			}
		}
	}
	chain := []string{save(m, "")}
	for range 12 {
		m.run()
		chain = append(chain, save(m, chain[len(chain)-1]))
	}
	side := m.fork(5)
	m.run()
	a := save(m, chain[12])
	side.run()
	b := save(side, chain[12])
	empty := save(side, b) // nothing changed
	check("made")

	s = reopen(t, s)
	check("reopened")

	for _, id := range []string{chain[12], chain[5], a} {
		got, err := s.Merge(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Memory) != 2 {
			t.Fatalf("%d layers after the merge", len(got.Memory))
		}
		check("merged")
	}
	s = reopen(t, s)
	check("merged and reopened")

	if err := s.Delete(b, false); !errors.Is(err, ErrChildren) {
		t.Fatal(err)
	}
	if err := s.Delete(b, true); err != nil {
		t.Fatal(err)
	}
	delete(mem, b)
	delete(mem, empty)
	check("deleted")

	var w bytes.Buffer
	if err := s.Export(ctx, a, &w); err != nil {
		t.Fatal(err)
	}
	id, err := s.Import(ctx, bytes.NewReader(w.Bytes()), ImportOptions{Tenant: "u"})
	if err != nil {
		t.Fatal(err)
	}
	check("imported")
	if !bytes.Equal(memoryOf(t, s, id), mem[a]) || top(t, s, id) != disk[a] {
		t.Fatal("what was imported differs")
	}
	if got, _ := s.Get(id); got.Origin != a || got.Tenant != "u" {
		t.Fatalf("%+v", got)
	}
	s = reopen(t, s)
	check("imported and reopened")
	if !bytes.Equal(memoryOf(t, s, id), mem[a]) {
		t.Fatal("what was imported differs after reopening")
	}
	t.Logf("%d bytes in the archive of %d layers", w.Len(), len(chain)+1)
}

func TestRecord(t *testing.T) {
	s := open(t, t.TempDir())
	m := newMachine(t, 2)
	base := m.mustSave(s, "")
	m.mem[0] ^= 1
	m.mem[page] ^= 1
	clear(m.mem[4*page : 5*page])
	m.old[4*page] = 1 // so that the page becomes zero
	id := m.mustSave(s, base)
	got, err := s.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	r := got.Record
	if r.Pages != 2 || r.ZeroPages != 1 || r.Depth != 1 || r.Tracker != "full" || r.Bytes <= 0 || r.Store <= 0 || time.Since(r.Durable) > time.Minute {
		t.Fatalf("%+v", r)
	}
	if err := got.Check(testFingerprint); err != nil {
		t.Fatal(err)
	}
	other := testFingerprint
	other.CPU, other.Host = "another", "hardware"
	var bad *Incompatible
	if err := got.Check(other); !errors.Is(err, ErrIncompatible) || !errors.As(err, &bad) || len(bad.Differs) != 2 || !strings.Contains(err.Error(), "host kind") {
		t.Fatal(err)
	}
	future := *got
	future.Fingerprint.Format = "2.0"
	if err := future.Check(testFingerprint); !errors.Is(err, ErrIncompatible) {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir())
	m := newMachine(t, 3)
	base := m.mustSave(s, "")
	none := manifest.NewID()
	if _, err := s.Get(none); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := s.Resolve(ctx, "../../etc"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := s.Delete(none, true); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if _, err := m.save(s, none); !errors.Is(err, ErrParentMissing) {
		t.Error(err)
	}
	if _, err := s.Begin(Spec{Kind: Template, Parent: base}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := s.Merge(ctx, base); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	if _, err := Open(Options{Root: s.root}); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	lease, err := s.Lease(base)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(base, true); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	lease.Release()
	lease.Release()
	if _, err := s.Annotate(base, func(m *Manifest) { m.Pinned, m.Name = true, "x"; m.Labels["k"] = "v" }); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(base, true); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
	d, err := s.Begin(Spec{Kind: Checkpoint, Parent: base, Machine: testMachine})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Annotate(base, func(m *Manifest) { m.Pinned = false }); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(base, true); !errors.Is(err, ErrInUse) {
		t.Error("deleted under a draft", err)
	}
	d.Abort()
	d.Abort()
	clean(t, s)
	for name, edit := range map[string]func(c *Content){
		"no state":      func(c *Content) { c.StateBytes = 0 },
		"no pages":      func(c *Content) { c.Memory = nil },
		"fewer disks":   func(c *Content) { c.Disks = c.Disks[:1] },
		"another disk":  func(c *Content) { c.Disks[1].ID = "vdc" },
		"grown disk":    func(c *Content) { c.Disks[1].Size++ },
		"external disk": func(c *Content) { c.Disks[1].External = []Ref{{External: "x"}} },
	} {
		d, err := s.Begin(Spec{Kind: Checkpoint, Parent: base, Machine: testMachine})
		if err != nil {
			t.Fatal(err)
		}
		m.run()
		m.mem[0]++
		c := m.content(Checkpoint)
		edit(&c)
		if _, err := d.Commit(ctx, c); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
		clean(t, s)
	}
	if err := s.Delete(base, false); err != nil {
		t.Error(err)
	}
}

// A checkpoint may be begun, and committed, while its parent is still being written.
func TestChildOfADraft(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir())
	m := newMachine(t, 4)
	base := m.mustSave(s, "")
	begin := func(parent string) *Draft {
		d, err := s.Begin(Spec{Kind: Checkpoint, Parent: parent, Machine: testMachine, Tenant: "t"})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	first := begin(base)
	m.run()
	one := m.content(Checkpoint)
	second := begin(first.ID)
	m.run()
	two := m.content(Checkpoint)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := second.Commit(ctx, two); err != nil {
			t.Error(err)
		}
	})
	if _, err := first.Commit(ctx, one); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if !bytes.Equal(memoryOf(t, s, second.ID), m.mem) {
		t.Fatal("memory differs")
	}
	// A parent that does not come takes its child with it.
	lost := begin(second.ID)
	child := begin(lost.ID)
	lost.Abort()
	m.run()
	if _, err := child.Commit(ctx, m.content(Checkpoint)); !errors.Is(err, ErrParentMissing) {
		t.Fatal(err)
	}
	clean(t, s)
}

// Checkpoints of a snapshot and merges of it go on at the same time.
func TestMergeBesideCheckpoints(t *testing.T) {
	ctx := context.Background()
	s := open(t, t.TempDir())
	m := newMachine(t, 6)
	id := m.mustSave(s, "")
	for range 4 {
		m.run()
		id = m.mustSave(s, id)
	}
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			f := m.fork(uint64(i))
			parent := id
			for range 5 {
				f.run()
				child, err := f.save(s, parent)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(memoryOf(t, s, child), f.mem) {
					t.Errorf("memory of %s differs", child)
				}
				if _, err := s.Merge(ctx, parent); err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				parent = child
			}
		})
	}
	wg.Wait()
	if _, err := s.GC(ctx, Watermark{High: 1 << 40, Low: 1 << 40}, nil); err != nil {
		t.Fatal(err)
	}
	s = reopen(t, s)
	clean(t, s)
	if !bytes.Equal(memoryOf(t, s, id), m.mem) {
		t.Fatal("memory differs")
	}
}

// Lineage that is wrong is found when the store is opened, and stays visible.
func TestBadLineage(t *testing.T) {
	s := open(t, t.TempDir())
	m := newMachine(t, 9)
	base := m.mustSave(s, "")
	a := m.mustSave(s, base)
	b := m.mustSave(s, a)
	other := m.mustSave(s, base)
	edit := func(id, old, new string) {
		path := filepath.Join(s.dir(id), manifest.FileName)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text = text[:strings.LastIndex(string(text), `,"digest":`)]
		if err := os.WriteFile(path, manifest.Seal([]byte(strings.ReplaceAll(string(text), old, new)+"}")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(id string, want error) {
		t.Helper()
		s = reopen(t, s)
		if _, err := s.Resolve(context.Background(), id); !errors.Is(err, want) {
			t.Errorf("%v, not %v", err, want)
		}
		if _, err := s.Get(other); err != nil {
			t.Errorf("the other snapshot: %v", err)
		}
	}
	parent := func(id string) string { return `"parent":"` + id + `"` }
	edit(a, parent(base), parent(b))
	expect(b, ErrCycle)
	edit(a, parent(b), parent(manifest.NewID()))
	expect(b, ErrParentMissing)
	if n := len(s.Problems()); n != 2 {
		t.Errorf("%d problems", n)
	}
	edit(a, `"kind":"checkpoint"`, `"kind":"other"`)
	expect(a, ErrDamaged)
	if err := s.Delete(b, false); err != nil { // what is broken can be deleted
		t.Error(err)
	}
}
