package guestmem

import (
	"bytes"
	"errors"
	"io"
	"math"
	"testing"
)

func TestSliceBounds(t *testing.T) {
	m, err := New(16 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	size := m.Size()
	for _, c := range []struct {
		name   string
		gpa, n uint64
		ok     bool
	}{
		{"first byte", 0, 1, true},
		{"all", 0, size, true},
		{"last byte", size - 1, 1, true},
		{"nothing inside", 8, 0, true},
		{"one too many", 0, size + 1, false},
		{"behind the end", size, 1, false},
		{"nothing behind the end", size, 0, false},
		{"length overflows", 16, math.MaxUint64, false},
		{"sum wraps to zero", math.MaxUint64 - 7, 8, false},
		{"hole", HoleStart, 4, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := m.Slice(c.gpa, c.n)
			if (err == nil) != c.ok {
				t.Fatalf("Slice(%#x, %#x): err %v, want ok %v", c.gpa, c.n, err, c.ok)
			}
			if err != nil && !errors.Is(err, ErrOutOfRange) {
				t.Errorf("error %v does not wrap ErrOutOfRange", err)
			}
			if err == nil && uint64(len(b)) != c.n {
				t.Errorf("got %d bytes, want %d", len(b), c.n)
			}
		})
	}
}

func TestLayoutAroundHole(t *testing.T) {
	for _, c := range []struct {
		size uint64
		want []Region
	}{
		{512 << 20, []Region{{0, 512 << 20, 0}}},
		{HoleStart, []Region{{0, HoleStart, 0}}},
		{5 << 30, []Region{{0, HoleStart, 0}, {HoleEnd, 5<<30 - HoleStart, HoleStart}}},
	} {
		got := Layout(c.size)
		if len(got) != len(c.want) {
			t.Fatalf("Layout(%#x) = %+v", c.size, got)
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("Layout(%#x)[%d] = %+v, want %+v", c.size, i, got[i], c.want[i])
			}
		}
	}
}

func TestRangeAcrossHoleIsRefused(t *testing.T) {
	// Mapped sparsely: only the pages touched exist.
	m, err := New(HoleStart + 64*PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	if _, err := m.Slice(HoleStart-8, 16); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("range into the hole: %v", err)
	}
	if err := m.WriteAt([]byte("above"), HoleEnd); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 5)
	if err := m.ReadAt(got, HoleEnd); err != nil || !bytes.Equal(got, []byte("above")) {
		t.Errorf("read back %q, %v", got, err)
	}
}

func TestDirtyPages(t *testing.T) {
	m, err := New(256 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	b := NewBitmap(m.Size())
	m.TrackDirty(b)
	if err := m.WriteAt(make([]byte, 2), 3*PageSize-1); err != nil {
		t.Fatal(err)
	}
	m.MarkDirty(100*PageSize, 1)
	m.MarkDirty(1<<40, 8) // outside: ignored
	if b.Count() != 3 {
		t.Errorf("count %d, want 3", b.Count())
	}
	var pages []uint64
	b.Drain(func(p uint64) { pages = append(pages, p) })
	if len(pages) != 3 || pages[0] != 2 || pages[1] != 3 || pages[2] != 100 {
		t.Errorf("dirty pages %v", pages)
	}
	if b.Count() != 0 {
		t.Error("drained bitmap is not clear")
	}
}

func TestAtomics(t *testing.T) {
	b := make([]byte, 8)
	StoreRelease16(b, 6, 0xbeef)
	if b[6] != 0xef || b[7] != 0xbe || b[5] != 0 {
		t.Errorf("bytes %x", b)
	}
	if v := LoadAcquire16(b, 6); v != 0xbeef {
		t.Errorf("load %#x", v)
	}
	Store32(b, 0, 0x01020304)
	if Load32(b, 0) != 0x01020304 || b[0] != 4 {
		t.Errorf("bytes %x", b)
	}
	Fence()
}

func TestMapRefusesShortFile(t *testing.T) {
	if _, err := New(PageSize + 1); err == nil {
		t.Error("odd size was accepted")
	}
}

func TestReclaim(t *testing.T) {
	m, err := New(16 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	full := bytes.Repeat([]byte{1}, 4*PageSize)
	if err := m.WriteAt(full, 0); err != nil {
		t.Fatal(err)
	}
	if zeros, err := m.Reclaim(PageSize, 2*PageSize); err != nil || !zeros {
		t.Fatalf("zeros %v, error %v", zeros, err)
	}
	got := make([]byte, 4*PageSize)
	if err := m.ReadAt(got, 0); err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if want := byte(1); (i/PageSize == 1 || i/PageSize == 2) == (b == want) {
			t.Fatalf("byte %d is %d", i, b)
		}
	}
	for _, r := range [][2]uint64{{1, PageSize}, {0, 17 * PageSize}, {math.MaxUint64 - 4095, PageSize}} {
		if _, err := m.Reclaim(r[0], r[1]); !errors.Is(err, ErrOutOfRange) {
			t.Errorf("Reclaim(%#x, %#x): %v", r[0], r[1], err)
		}
	}
}

func TestFill(t *testing.T) {
	m, err := New(64 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Unmap()
	source := make([]byte, 40*PageSize)
	for i := range source {
		source[i] = byte(i / 7)
	}
	const gpa, offset, n = 100, 33, 39 * PageSize
	b := NewBitmap(m.Size())
	m.TrackDirty(b)
	if err := m.Fill(gpa, bytes.NewReader(source), offset, n); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, n)
	if err := m.ReadAt(got, gpa); err != nil || !bytes.Equal(got, source[offset:offset+n]) {
		t.Errorf("content differs: %v", err)
	}
	if b.Count() != 40 {
		t.Errorf("%d pages are dirty, want 40", b.Count())
	}
	if err := m.Fill(0, bytes.NewReader(source), 0, uint64(len(source))+1); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("short source: %v", err)
	}
	if err := m.Fill(32*PageSize, bytes.NewReader(source), 0, 33*PageSize); !errors.Is(err, ErrOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}
}
