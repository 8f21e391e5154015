package disk

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// file makes a file with the given content.
func file(t testing.TB, content []byte) *os.File {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "layer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	return f
}

// fill is n bytes of value b.
func fill(b byte, n int) []byte { return bytes.Repeat([]byte{b}, n) }

func mustOpen(t testing.TB, readOnly bool, files ...*os.File) *Disk {
	t.Helper()
	d, err := Open(files, readOnly)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func readAt(t testing.TB, d *Disk, off int64, n int) []byte {
	t.Helper()
	p := make([]byte, n)
	var v Vector
	v.Add(p)
	if err := d.Read(&v, off); err != nil {
		t.Fatal(err)
	}
	return p
}

func writeAt(t testing.TB, d *Disk, off int64, p []byte) {
	t.Helper()
	var v Vector
	v.Add(p)
	if err := d.Write(&v, off, false); err != nil {
		t.Fatal(err)
	}
}

func TestOpen(t *testing.T) {
	block := fill(1, BlockSize)
	onlyRead, err := os.Open(file(t, block).Name())
	if err != nil {
		t.Fatal(err)
	}
	defer onlyRead.Close()
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	sparse := file(t, nil)
	if err := sparse.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name     string
		files    []*os.File
		readOnly bool
		want     error
	}{
		{"no file", nil, false, ErrLayers},
		{"one file", []*os.File{file(t, block)}, false, nil},
		{"odd sectors", []*os.File{file(t, block[:512*3])}, false, nil},
		{"empty bottom", []*os.File{file(t, nil)}, false, ErrSize},
		{"part of a sector", []*os.File{file(t, block[:1000])}, false, ErrSize},
		{"empty top", []*os.File{file(t, block), file(t, nil)}, false, nil},
		{"sparse top", []*os.File{file(t, block), sparse}, false, nil},
		{"top with data and no index", []*os.File{file(t, block), file(t, block)}, false, ErrLayers},
		{"read-only descriptor to write", []*os.File{onlyRead}, false, ErrLayers},
		{"read-only descriptor to read", []*os.File{onlyRead}, true, nil},
		{"read-only descriptor at the bottom", []*os.File{onlyRead, file(t, nil)}, false, nil},
		{"directory", []*os.File{dir}, true, ErrLayers},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Open(c.files, c.readOnly)
			if c.want == nil && err != nil || !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestLayersHideWhatIsBelow(t *testing.T) {
	bottom := file(t, fill(1, 4*BlockSize))
	first, second := file(t, nil), file(t, nil)
	d := mustOpen(t, false, bottom, first)
	writeAt(t, d, BlockSize, fill(2, BlockSize))
	writeAt(t, d, 2*BlockSize, fill(0, BlockSize)) // zeros are data
	if err := d.Freeze(second); err != nil {
		t.Fatal(err)
	}
	writeAt(t, d, BlockSize+512, fill(3, 512)) // part of a block: the rest comes up
	if err := d.Zero(0, BlockSize); err != nil {
		t.Fatal(err)
	}
	want := append(fill(0, BlockSize), fill(2, 512)...)
	want = append(want, fill(3, 512)...)
	want = append(want, fill(2, BlockSize-1024)...)
	want = append(want, fill(0, BlockSize)...)
	want = append(want, fill(1, BlockSize)...)
	if got := readAt(t, d, 0, len(want)); !bytes.Equal(got, want) {
		t.Fatal("layers give other bytes than were written")
	}
	if d.Written() != 2 {
		t.Fatalf("the top holds %d blocks, want 2", d.Written())
	}
	if err := d.Drop(); err != nil {
		t.Fatal(err)
	}
	want = append(fill(1, BlockSize), fill(2, BlockSize)...)
	want = append(want, fill(0, BlockSize)...)
	want = append(want, fill(1, BlockSize)...)
	if got := readAt(t, d, 0, len(want)); !bytes.Equal(got, want) {
		t.Fatal("after the drop the disk is not what was frozen")
	}
	// What was dropped is still in the file, and must not come back.
	writeAt(t, d, BlockSize+1024, fill(4, 512))
	want = append(fill(2, 1024), fill(4, 512)...)
	want = append(want, fill(2, BlockSize-1536)...)
	if got := readAt(t, d, BlockSize, BlockSize); !bytes.Equal(got, want) {
		t.Fatal("dropped bytes came back")
	}
}

func TestFreezeRefuses(t *testing.T) {
	block := fill(1, BlockSize)
	d := mustOpen(t, false, file(t, block))
	if err := d.Freeze(file(t, block)); !errors.Is(err, ErrLayers) {
		t.Fatalf("layer with data: %v", err)
	}
	if err := d.Drop(); !errors.Is(err, ErrLayers) {
		t.Fatalf("drop of the only layer: %v", err)
	}
	readOnly := mustOpen(t, true, file(t, block))
	if err := readOnly.Freeze(file(t, nil)); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("freeze of a read-only disk: %v", err)
	}
	if err := readOnly.Drop(); !errors.Is(err, ErrReadOnly) {
		t.Fatalf("drop of a read-only disk: %v", err)
	}
}

func TestRangeAndReadOnly(t *testing.T) {
	d := mustOpen(t, false, file(t, fill(1, 3*512)))
	for _, c := range []struct{ off, n int64 }{{-1, 1}, {3 * 512, 1}, {512, 3 * 512}, {1 << 62, 1 << 62}} {
		var v Vector
		v.Add(make([]byte, min(c.n, 1<<20)))
		for op, err := range map[string]error{
			"read": d.Read(&v, c.off), "write": d.Write(&v, c.off, false), "zero": d.Zero(c.off, c.n),
		} {
			if !errors.Is(err, ErrOutOfRange) {
				t.Errorf("%s of %d at %d: %v", op, c.n, c.off, err)
			}
		}
	}
	readOnly := mustOpen(t, true, file(t, fill(1, 512)))
	var v Vector
	v.Add(make([]byte, 512))
	if err := readOnly.Write(&v, 0, false); !errors.Is(err, ErrReadOnly) {
		t.Errorf("write: %v", err)
	}
	if err := readOnly.Zero(0, 512); !errors.Is(err, ErrReadOnly) {
		t.Errorf("zero: %v", err)
	}
}

// A file that somebody cuts while it is used gives errors, not zeros.
func TestTruncatedFile(t *testing.T) {
	f := file(t, fill(1, 2*BlockSize))
	d := mustOpen(t, false, f)
	if err := f.Truncate(BlockSize); err != nil {
		t.Fatal(err)
	}
	var v Vector
	v.Add(make([]byte, 2*BlockSize))
	if err := d.Read(&v, 0); err == nil {
		t.Fatal("read of a cut file succeeded")
	}
	if v.Done() != BlockSize {
		t.Fatalf("%d bytes were there, got %d", BlockSize, v.Done())
	}
}

func TestTryReadOfColdFile(t *testing.T) {
	f := file(t, fill(7, 1<<20))
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	d := mustOpen(t, true, f)
	if d.layers[0].tryFlags == 0 {
		t.Skip("the file system of the temporary folder is memory, or knows no RWF_NOWAIT")
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
	var v Vector
	p := make([]byte, 1<<20)
	v.Add(p)
	if err := d.TryRead(&v, 0); err != nil && !errors.Is(err, ErrWouldBlock) {
		t.Fatal(err)
	}
	if err := d.Read(&v, v.Done()); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p, fill(7, 1<<20)) {
		t.Fatal("the two halves of the read do not fit together")
	}
}

// The kernel takes 1024 buffers at once; a vector may have more.
func TestLongVector(t *testing.T) {
	want := make([]byte, 3000*512)
	for i := range want {
		want[i] = byte(i / 512)
	}
	d := mustOpen(t, false, file(t, make([]byte, len(want))), file(t, nil))
	var v Vector
	for i := 0; i < len(want); i += 512 {
		v.Add(want[i : i+512])
	}
	if err := d.Write(&v, 0, true); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	if got := readAt(t, d, 0, len(want)); !bytes.Equal(got, want) {
		t.Fatal("read back other bytes")
	}
}
