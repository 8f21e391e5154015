package store

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
	"thaw/snapshot/pageindex"
)

const (
	page      = pageindex.PageSize
	testPages = 300 // two chunks of a layer, the last one short
)

var testMachine = Machine{VCPUs: 1, MemoryBytes: testPages * page}

var testFingerprint = Fingerprint{
	Format: Format(), VMM: "v1", Kernel: "k", Image: "i", CPU: "cpu", CPUHash: "h", Host: "pvm", HostKrn: "6",
}

// machine is a machine in the test: memory, and what its disk's top holds.
type machine struct {
	t    testing.TB
	rng  *rand.Rand
	mem  []byte // now
	old  []byte // at the last snapshot
	disk []byte
}

func newMachine(t testing.TB, seed uint64) *machine {
	m := &machine{t: t, rng: rand.New(rand.NewPCG(seed, 7)), mem: make([]byte, testMachine.MemoryBytes)}
	for p := 0; p < testPages; p += 1 + m.rng.IntN(4) {
		m.mem[p*page+m.rng.IntN(page)] = byte(1 + m.rng.IntN(255))
	}
	m.disk = []byte("bottom")
	return m
}

// run changes some pages, makes some zero, and writes to the disk.
func (m *machine) run() {
	for range 1 + m.rng.IntN(30) {
		p := m.rng.IntN(testPages)
		if m.rng.IntN(4) == 0 {
			clear(m.mem[p*page:][:page])
			continue
		}
		m.mem[p*page+m.rng.IntN(page)] ^= byte(1 + m.rng.IntN(255))
	}
	m.disk = append(m.disk, byte(m.rng.IntN(256)))
}

// fork is another machine in the same state.
func (m *machine) fork(seed uint64) *machine {
	return &machine{t: m.t, rng: rand.New(rand.NewPCG(seed, 8)), mem: bytes.Clone(m.mem), old: bytes.Clone(m.old), disk: bytes.Clone(m.disk)}
}

func (m *machine) memfd(b []byte) *os.File {
	f, err := layer.NewMemfd("test", int64(len(b)))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(b, 0); err != nil {
		m.t.Fatal(err)
	}
	return f
}

// content is what a VMM leaves: all memory of a template, else a delta.
func (m *machine) content(kind Kind) Content {
	pages := m.mem
	delta := pageindex.NewBuilder(testPages)
	if kind == Checkpoint {
		pages = nil
		for p := range uint32(testPages) {
			now := m.mem[p*page:][:page]
			if bytes.Equal(now, m.old[p*page:][:page]) {
				continue
			}
			r := pageindex.Run{First: p, Count: 1, Source: pageindex.FirstOverlay, At: uint32(len(pages) / page)}
			if bytes.Equal(now, make([]byte, page)) {
				r.Source, r.At = pageindex.Zero, 0
			} else {
				pages = append(pages, now...)
			}
			if err := delta.Add(r); err != nil {
				m.t.Fatal(err)
			}
		}
	}
	m.old = bytes.Clone(m.mem)
	var w format.Writer
	if err := w.AddCBOR(format.SectionMachine, map[string]int{"rip": m.rng.IntN(1000)}); err != nil {
		m.t.Fatal(err)
	}
	if err := w.Add(format.SectionMemory, delta.Index().Encode()); err != nil {
		m.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		m.t.Fatal(err)
	}
	return Content{
		State: m.memfd(append(b.Bytes(), make([]byte, 4096)...)), StateBytes: int64(b.Len()), Memory: m.memfd(pages),
		Disks: []DiskContent{
			{ID: "vda", ReadOnly: true, Size: 100},
			{ID: "vdb", Size: 1 << 20, Layer: m.memfd(m.disk)},
		},
		Record: Record{Tracker: "full"},
	}
}

// save commits a snapshot of the machine and returns its id.
func (m *machine) save(s *Store, parent string) (string, error) {
	spec := Spec{Kind: Checkpoint, Parent: parent, Machine: testMachine, Fingerprint: testFingerprint, Tenant: "t"}
	if parent == "" {
		spec.Kind = Template
	}
	d, err := s.Begin(spec)
	if err != nil {
		return "", err
	}
	c := m.content(spec.Kind)
	if parent == "" {
		c.Disks[0].External = []Ref{{External: "image", Size: 100, Digest: sha([]byte("image"))}}
	}
	_, err = d.Commit(context.Background(), c)
	return d.ID, err
}

func (m *machine) mustSave(s *Store, parent string) string {
	m.t.Helper()
	id, err := m.save(s, parent)
	if err != nil {
		m.t.Fatal(err)
	}
	return id
}

// memoryOf puts a snapshot's memory together, as a restore does.
func memoryOf(t testing.TB, s *Store, id string) []byte {
	t.Helper()
	c, err := s.Resolve(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mem := make([]byte, c.Manifest.Machine.MemoryBytes)
	var files []*os.File
	for _, l := range c.Memory {
		f, err := l.Load(context.Background(), false)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	for r := range c.Index.All() {
		if _, err := files[r.Source-1].ReadAt(mem[r.First*page:r.End()*page], int64(r.At)*page); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

// top is what the highest layer of the snapshot's writable disk holds.
func top(t testing.TB, s *Store, id string) string {
	t.Helper()
	c, err := s.Resolve(context.Background(), id)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	files := c.Disks[1].Files
	if c.Disks[0].Files[0] != nil || len(files) != len(c.Disks[1].Layers) {
		t.Fatal("disks are not those of the manifest")
	}
	b := make([]byte, c.Disks[1].Layers[len(files)-1].Size)
	if _, err := files[len(files)-1].ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t testing.TB, root string) *Store {
	t.Helper()
	s, err := Open(Options{Root: root, Folder: testFolder{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func reopen(t testing.TB, s *Store) *Store {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return open(t, s.root)
}

// clean fails if anything but complete snapshots is in the store's folder.
func clean(t testing.TB, s *Store) {
	t.Helper()
	if list, err := os.ReadDir(s.work()); err != nil || len(list) != 0 {
		t.Errorf("work holds %v, %v", list, err)
	}
	for _, p := range s.Problems() {
		t.Errorf("problem: %v", p)
	}
	for _, i := range s.List("") {
		want := map[string]bool{manifest.FileName: true}
		for _, f := range i.Manifest.Files {
			want[f.Name] = true
			if f.Layer {
				want[f.Name+manifest.SumSuffix] = true
			}
		}
		list, err := os.ReadDir(filepath.Join(s.snapshots(), i.ID))
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if !want[d.Name()] {
				t.Errorf("debris: %s/%s", i.ID, d.Name())
			}
		}
	}
}
