package fold

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"os"
	"testing"

	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
	"thaw/snapshot/store"
	"thaw/virtio/block"
	"thaw/virtio/block/disk"
	"thaw/vmm"
)

const (
	blocks   = 600
	diskSize = blocks * disk.BlockSize
	memory   = 16 * pageindex.PageSize
)

// rig is a store and a machine of which only the disk is real.
type rig struct {
	testing.TB
	s      *store.Store
	rng    *rand.Rand
	disk   *disk.Disk
	files  []*os.File // of the disk, the top last
	flat   []byte     // what the disk has
	origin *os.File   // below the template's layer, outside the store
}

func open(t testing.TB, root string) *store.Store {
	t.Helper()
	s, err := store.Open(store.Options{Root: root, Folder: Disks{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newRig(t testing.TB, root string) *rig {
	r := &rig{TB: t, s: open(t, root), rng: rand.New(rand.NewPCG(1, 9)), flat: make([]byte, diskSize)}
	for b := 0; b < blocks; b += 3 {
		r.flat[b*disk.BlockSize+7] = byte(b | 1)
	}
	r.origin = r.file()
	if _, err := r.origin.WriteAt(r.flat, 0); err != nil {
		t.Fatal(err)
	}
	r.files = []*os.File{r.origin, r.file()}
	d, err := disk.Open(r.files, false)
	if err != nil {
		t.Fatal(err)
	}
	r.disk = d
	return r
}

// file is an empty layer.
func (r *rig) file() *os.File {
	f, err := os.CreateTemp(r.TempDir(), "layer")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { f.Close() })
	if err := f.Truncate(diskSize); err != nil {
		r.Fatal(err)
	}
	return f
}

// write changes n pieces of the disk.
func (r *rig) write(n int) {
	for range n {
		at := r.rng.IntN(blocks)
		count := min(1+r.rng.IntN(8), blocks-at)
		from, end := at*disk.BlockSize, (at+count)*disk.BlockSize
		if r.rng.IntN(4) == 0 {
			clear(r.flat[from:end])
			if err := r.disk.Zero(int64(from), int64(end-from)); err != nil {
				r.Fatal(err)
			}
			continue
		}
		for i := from; i < end; i += 64 {
			r.flat[i] = byte(r.rng.IntN(256))
		}
		var v disk.Vector
		v.Add(r.flat[from:end])
		if err := r.disk.Write(&v, int64(from), false); err != nil {
			r.Fatal(err)
		}
	}
}

// state is a state file as the VMM writes it.
func (r *rig) state() []byte {
	one := disk.State{Size: 100 * disk.SectorSize, Layers: 1}
	m := vmm.State{MemoryBytes: memory, Devices: []vmm.DeviceState{
		{Name: "block0", Block: &block.State{ID: "vda", ReadOnly: true, Disk: one}},
		{Name: "block1", Block: &block.State{ID: "vdb", Disk: r.disk.State()}},
		{Name: "rng"},
	}}
	var w format.Writer
	if err := w.AddCBOR(format.SectionMachine, m); err != nil {
		r.Fatal(err)
	}
	if err := w.Add(format.SectionMemory, (&pageindex.Index{Pages: memory / pageindex.PageSize}).Encode()); err != nil {
		r.Fatal(err)
	}
	if err := w.Add("tables", []byte{1, 2, 3}); err != nil {
		r.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		r.Fatal(err)
	}
	return b.Bytes()
}

func (r *rig) memfd(b []byte) *os.File {
	f, err := layer.NewMemfd("test", int64(len(b)))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(b, 0); err != nil {
		r.Fatal(err)
	}
	return f
}

// save puts a new top on the disk and commits what was below it.
func (r *rig) save(parent string) (string, error) {
	frozen := r.files[len(r.files)-1]
	r.files = append(r.files, r.file())
	if err := r.disk.Freeze(r.files[len(r.files)-1]); err != nil {
		r.Fatal(err)
	}
	spec := store.Spec{Kind: store.Checkpoint, Parent: parent, Machine: store.Machine{VCPUs: 1, MemoryBytes: memory}}
	vda := store.DiskContent{ID: "vda", ReadOnly: true, Size: 100 * disk.SectorSize}
	vdb := store.DiskContent{ID: "vdb", Size: diskSize, Layer: frozen}
	c := store.Content{}
	if parent == "" {
		spec.Kind = store.Template
		digest := layer.Digest{}.String()
		vda.External = []store.Ref{{External: "image", Size: vda.Size, Digest: digest}}
		vdb.External = []store.Ref{{External: "scratch", Size: diskSize, Digest: digest}}
		c.Memory = r.memfd(make([]byte, memory))
	}
	c.Disks = []store.DiskContent{vda, vdb}
	state := r.state()
	c.State, c.StateBytes = r.memfd(state), int64(len(state))
	d, err := r.s.Begin(spec)
	if err != nil {
		return "", err
	}
	_, err = d.Commit(context.Background(), c)
	return d.ID, err
}

func (r *rig) mustSave(parent string) string {
	r.Helper()
	id, err := r.save(parent)
	if err != nil {
		r.Fatal(err)
	}
	return id
}

// restore is the disk of a snapshot, as a VMM opens it, and its files.
func (r *rig) restore(id string) (*disk.Disk, []*os.File) {
	r.Helper()
	c, err := r.s.Resolve(context.Background(), id)
	if err != nil {
		r.Fatal(err)
	}
	defer c.Close()
	b, err := io.ReadAll(io.NewSectionReader(c.State, 0, format.MaxFile))
	if err != nil {
		r.Fatal(err)
	}
	file, err := format.Read(bytes.NewReader(b), format.Limits{})
	if err != nil {
		r.Fatal(err)
	}
	if tables, err := file.Section("tables"); err != nil || !bytes.Equal(tables, []byte{1, 2, 3}) {
		r.Fatal("another section changed")
	}
	var m vmm.State
	if err := file.CBOR(format.SectionMachine, &m); err != nil {
		r.Fatal(err)
	}
	var files []*os.File
	for _, f := range c.Disks[1].Files {
		if f == nil {
			f = r.origin
		}
		again, err := os.Open("/proc/self/fd/" + itoa(f.Fd()))
		if err != nil {
			r.Fatal(err)
		}
		r.Cleanup(func() { again.Close() })
		files = append(files, again)
	}
	files = append(files, r.file())
	d, err := disk.Restore(files, false, m.Devices[1].Block.Disk)
	if err != nil {
		r.Fatal(err)
	}
	return d, files
}

// check compares the disk of a snapshot with what it must have.
func (r *rig) check(id string, want []byte) {
	r.Helper()
	d, files := r.restore(id)
	if len(files) > 50 {
		r.Errorf("%d files", len(files))
	}
	got := make([]byte, len(want))
	var v disk.Vector
	v.Add(got)
	if err := d.Read(&v, 0); err != nil {
		r.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		r.Fatalf("disk of %s differs", id)
	}
}

// stateOf is a state file with this machine in it.
func stateOf(t testing.TB, section []byte) []byte {
	var w format.Writer
	if err := w.Add(format.SectionMachine, section); err != nil {
		t.Skip(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
