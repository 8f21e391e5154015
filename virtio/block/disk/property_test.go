package disk

import (
	"bytes"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// TestLikeFlatFile compares a pile of layers with a flat byte slice under
// random writes, zeroings, freezes, drops and restores from saved state.
func TestLikeFlatFile(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{dir: dir}
		defer m.close()
		size := rapid.IntRange(1, 40*BlockSize/SectorSize).Draw(rt, "sectors") * SectorSize
		m.flat = make([]byte, size)
		for i := range m.flat {
			m.flat[i] = byte(i/SectorSize) | 1
		}
		bottom := m.file(rt)
		if _, err := bottom.Write(m.flat); err != nil {
			rt.Fatal(err)
		}
		d, err := Open(m.files, false)
		if err != nil {
			rt.Fatal(err)
		}
		m.disk = d
		rt.Repeat(map[string]func(*rapid.T){
			"write":   m.write,
			"zero":    m.zero,
			"freeze":  m.freeze,
			"drop":    m.drop,
			"restore": m.restore,
			"":        m.check,
		})
	})
}

type model struct {
	dir    string
	disk   *Disk
	flat   []byte
	frozen []byte // flat at the last freeze
	files  []*os.File
}

func (m *model) file(t *rapid.T) *os.File {
	f, err := os.CreateTemp(m.dir, "layer")
	if err != nil {
		t.Fatal(err)
	}
	m.files = append(m.files, f)
	return f
}

func (m *model) close() {
	for _, f := range m.files {
		f.Close()
		os.Remove(f.Name())
	}
}

// span draws a range of whole sectors.
func (m *model) span(t *rapid.T) (off, n int) {
	sectors := len(m.flat) / SectorSize
	off = rapid.IntRange(0, sectors).Draw(t, "off")
	n = rapid.IntRange(0, sectors-off).Draw(t, "n")
	return off * SectorSize, n * SectorSize
}

func (m *model) write(t *rapid.T) {
	off, n := m.span(t)
	p := bytes.Repeat([]byte{rapid.Byte().Draw(t, "value")}, n)
	copy(m.flat[off:], p)
	var v Vector
	for len(p) > 0 { // buffers of any length
		k := rapid.IntRange(1, len(p)).Draw(t, "buffer")
		v.Add(p[:k])
		p = p[k:]
	}
	if err := m.disk.Write(&v, int64(off), rapid.Bool().Draw(t, "sync")); err != nil {
		t.Fatal(err)
	}
}

func (m *model) zero(t *rapid.T) {
	off, n := m.span(t)
	clear(m.flat[off : off+n])
	if err := m.disk.Zero(int64(off), int64(n)); err != nil {
		t.Fatal(err)
	}
}

func (m *model) freeze(t *rapid.T) {
	if err := m.disk.Freeze(m.file(t)); err != nil {
		t.Fatal(err)
	}
	m.frozen = bytes.Clone(m.flat)
}

func (m *model) drop(t *rapid.T) {
	if m.frozen == nil {
		t.Skip("nothing is frozen")
	}
	if err := m.disk.Drop(); err != nil {
		t.Fatal(err)
	}
	m.flat = bytes.Clone(m.frozen)
}

func (m *model) restore(t *rapid.T) {
	before := m.disk.State()
	d, err := Restore(m.files, false, before)
	if err != nil {
		t.Fatal(err)
	}
	if d.Written() != m.disk.Written() {
		t.Fatalf("%d blocks in the top, had %d", d.Written(), m.disk.Written())
	}
	m.disk = d
}

func (m *model) check(t *rapid.T) {
	got := make([]byte, len(m.flat))
	for _, read := range []func(*Vector, int64) error{m.disk.Read, m.disk.TryRead} {
		var v Vector
		v.Add(got)
		if err := read(&v, 0); err != nil && err != ErrWouldBlock {
			t.Fatal(err)
		}
		if v.Len() == 0 && !bytes.Equal(got, m.flat) {
			t.Fatal("layers and flat file differ")
		}
	}
}
