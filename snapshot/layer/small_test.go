package layer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// mixed has a chunk that compresses, one of zeros, one that does not compress, and a
// short one.
func mixed() []byte {
	b := content(3*ChunkSize+5*pageSize, 4)
	rng := rand.NewChaCha8([32]byte{5})
	_, _ = rng.Read(b[2*ChunkSize : 3*ChunkSize]) // it never fails
	return b
}

func TestSmallChunks(t *testing.T) {
	ctx := context.Background()
	b := mixed()
	size := int64(len(b))
	src, dst := file(t, b), file(t, nil)
	s, err := CopySmall(ctx, dst, src, size)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Measure(ctx, src, size)
	if err != nil || want.Root() != s.Root() {
		t.Fatalf("digests are those of another layer, %v", err)
	}
	if got := blocks(t, dst); got > ChunkSize+200<<10 {
		t.Errorf("the file takes %d bytes", got)
	}
	if err := Verify(ctx, dst, s); err != nil {
		t.Error(err)
	}
	mem, err := Load(ctx, dst, s, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	if !bytes.Equal(read(t, mem, len(b)), b) {
		t.Error("memfd differs")
	}
	var small, whole bytes.Buffer
	if err := errors.Join(Pack(ctx, &small, dst, s), Pack(ctx, &whole, src, s)); err != nil || !bytes.Equal(small.Bytes(), whole.Bytes()) {
		t.Errorf("it packs as something else, %v", err)
	}
	// Each byte that is stored counts.
	for _, at := range []int64{0, 9, 13, 100, ChunkSize - 1, 2*ChunkSize + 77} {
		old := read(t, dst, int(at)+1)[at]
		if _, err := dst.WriteAt([]byte{old ^ 1}, at); err != nil {
			t.Fatal(err)
		}
		if err := Verify(ctx, dst, s); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d was changed: %v", at, err)
		}
		if _, err := dst.WriteAt([]byte{old}, at); err != nil {
			t.Fatal(err)
		}
	}
}

// A chunk whose own content begins like a small one is plain all the same.
func TestContentLikeASmallChunk(t *testing.T) {
	ctx := context.Background()
	inner := file(t, nil)
	if err := writeSmall(inner, content(ChunkSize, 3), 0); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, ChunkSize)
	_, _ = inner.ReadAt(b, 0) // it is shorter
	for name, store := range map[string]Store{"plain": Copy, "small": CopySmall} {
		dst := file(t, nil)
		s, err := store(ctx, dst, file(t, b), ChunkSize)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(loaded(t, dst, s), b) {
			t.Errorf("%s: it was read as something else", name)
		}
	}
}

func loaded(t *testing.T, from *os.File, s *Sum) []byte {
	t.Helper()
	mem, err := Load(context.Background(), from, s, "test", false)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	return read(t, mem, int(s.Size))
}

// A frame of a few bytes that would fill the memory is not unpacked.
func TestBombIsRefused(t *testing.T) {
	e, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, ChunkSize)
	frame := e.EncodeAll(make([]byte, 64<<20), nil)
	copy(b[copy(b, smallMagic)+8:], frame)
	binary.LittleEndian.PutUint32(b[len(smallMagic):], uint32(len(frame)))
	binary.LittleEndian.PutUint32(b[len(smallMagic)+4:], crc32.Checksum(frame, castagnoli))
	if frameOf(b) == nil {
		t.Fatal("it does not look like a small chunk")
	}
	s := newSum(ChunkSize)
	s.Chunks[0] = Digest{1}
	allocated := testing.Benchmark(func(tb *testing.B) {
		for tb.Loop() {
			if err := Verify(context.Background(), file(t, b), s); !errors.Is(err, ErrDamaged) {
				tb.Fatal(err)
			}
		}
	}).AllocedBytesPerOp()
	if allocated > 4*ChunkSize {
		t.Errorf("%d bytes were allocated", allocated)
	}
}

func FuzzPlain(f *testing.F) {
	src := content(2*pageSize, 7)
	dst := file(f, nil)
	if err := writeSmall(dst, src, 0); err != nil {
		f.Fatal(err)
	}
	stored := make([]byte, len(src))
	_, _ = dst.ReadAt(stored, 0) // it is shorter
	f.Add(stored, src)
	f.Add(src, src)
	f.Add([]byte(smallMagic), []byte{})
	f.Fuzz(func(t *testing.T, stored, content []byte) {
		if len(stored) > ChunkSize || len(content) > ChunkSize {
			return
		}
		ok, err := plain(stored, digest(content), func(b []byte) error {
			if len(b) != len(stored) || digest(b) != digest(content) {
				t.Errorf("%d bytes of another content were taken", len(b))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if !ok && bytes.Equal(stored, content) {
			t.Error("a plain chunk was refused")
		}
	})
}
