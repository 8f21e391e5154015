package layer

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func file(t testing.TB, b []byte) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	return f
}

// content is n bytes with zero pages, zero chunks and data in them.
func content(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	b := make([]byte, n)
	for at := 0; at < n; at += pageSize {
		if at/ChunkSize%3 != 1 && rng.IntN(3) == 0 {
			b[at+rng.IntN(min(pageSize, n-at))] = byte(1 + rng.IntN(255))
		}
	}
	return b
}

func read(t testing.TB, f *os.File, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && n > 0 {
		t.Fatal(err)
	}
	return b
}

func blocks(t testing.TB, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func TestCopyVerifyLoad(t *testing.T) {
	ctx := context.Background()
	for _, size := range []int{0, 1, pageSize, ChunkSize - 1, ChunkSize, 7*ChunkSize + 4097} {
		b := content(size, uint64(size))
		src, dst := file(t, b), file(t, nil)
		s, err := Copy(ctx, dst, src, int64(size))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(read(t, dst, size), b) {
			t.Fatalf("%d bytes: copy differs", size)
		}
		if err := Verify(ctx, dst, s); err != nil {
			t.Fatal(err)
		}
		if err := Verify(ctx, src, s); err != nil { // no holes: the same layer
			t.Fatal(err)
		}
		m, err := Measure(ctx, src, int64(size))
		if err != nil || m.Root() != s.Root() {
			t.Fatalf("measured %v, %v", m, err)
		}
		back, err := DecodeSum(s.Encode(), s.Root())
		if err != nil || back.Root() != s.Root() {
			t.Fatalf("list came back as %v, %v", back, err)
		}
		mem, err := Load(ctx, dst, s, "test", false)
		if err != nil {
			t.Fatal(err)
		}
		defer mem.Close()
		if !bytes.Equal(read(t, mem, size), b) {
			t.Fatalf("%d bytes: memfd differs", size)
		}
		if !Sealed(mem) {
			t.Fatal("memfd is not sealed")
		}
		if _, err := mem.WriteAt([]byte{1}, 0); err == nil {
			t.Fatal("memfd can be written")
		}
		var data int64
		for at := 0; at < size; at += pageSize {
			if !isZero(b[at:min(at+pageSize, size)]) {
				data += pageSize
			}
		}
		if got := blocks(t, mem); got != data {
			t.Fatalf("%d bytes: memfd takes %d, has %d of data", size, got, data)
		}
	}
}

func TestDamageIsFound(t *testing.T) {
	ctx := context.Background()
	const size = 4*ChunkSize + 100
	b := content(size, 9)
	src := file(t, b)
	s, err := Measure(ctx, src, size)
	if err != nil {
		t.Fatal(err)
	}
	both := func(what string) {
		t.Helper()
		if err := Verify(ctx, src, s); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: verify: %v", what, err)
		}
		if m, err := Load(ctx, src, s, "test", false); !errors.Is(err, ErrDamaged) || m != nil {
			t.Errorf("%s: load: %v", what, err)
		}
	}
	for i := range s.Chunks {
		for _, at := range []int{i * ChunkSize, min((i+1)*ChunkSize, size) - 1} {
			src.WriteAt([]byte{b[at] ^ 0x10}, int64(at))
			both("flip")
			src.WriteAt(b[at:at+1], int64(at))
		}
	}
	if err := Verify(ctx, src, s); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fallocate(int(src.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, ChunkSize); err != nil {
		t.Fatal(err)
	}
	both("punched")
	src.WriteAt(b[:ChunkSize], 0)
	src.Truncate(size - 1)
	both("cut short")
	src.Truncate(size + 1)
	both("too long")
	if _, err := Copy(ctx, file(t, nil), src, size+2); !errors.Is(err, ErrDamaged) {
		t.Errorf("copy of a short file: %v", err)
	}
}

func TestCopyStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Copy(ctx, file(t, nil), file(t, content(ChunkSize, 1)), ChunkSize); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

func TestSealRefusesAMappedMemfd(t *testing.T) {
	m, err := NewMemfd("test", hugeSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b, err := unix.Mmap(int(m.Fd()), 0, hugeSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if err := Seal(m); !errors.Is(err, ErrWritable) {
		t.Fatal(err)
	}
	if err := unix.Munmap(b); err != nil {
		t.Fatal(err)
	}
	if err := Seal(m); err != nil {
		t.Fatal(err)
	}
}

// Collapsing changes no byte, and leaves ranges with few data alone.
func TestCollapseKeepsBytes(t *testing.T) {
	const size = 4 * hugeSize
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(3, 4))
	for at := 0; at < hugeSize; at += pageSize { // full, nearly full, sparse, empty
		b[at] = 1
		if rng.IntN(10) != 0 {
			b[hugeSize+at+1] = 2
		}
		if rng.IntN(3) == 0 {
			b[2*hugeSize+at+2] = 3
		}
	}
	src := file(t, b)
	s, err := Measure(context.Background(), src, size)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(context.Background(), src, s, "test", true)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if !bytes.Equal(read(t, m, size), b) {
		t.Fatal("bytes changed")
	}
	// Two huge pages where the kernel agrees; never one for the sparse range.
	if got := blocks(t, m); got > 2*hugeSize+hugeSize/2 {
		t.Errorf("takes %d bytes", got)
	}
}

func TestSumRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSum(rapid.Int64Range(0, 20*ChunkSize).Draw(t, "size"))
		for i := range s.Chunks {
			s.Chunks[i] = Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "digest"))
		}
		b := s.Encode()
		if int64(len(b)) != EncodedSize(s.Size) {
			t.Fatalf("%d bytes, not %d", len(b), EncodedSize(s.Size))
		}
		got, err := DecodeSum(b, s.Root())
		if err != nil || got.Root() != s.Root() {
			t.Fatal(err)
		}
		b[rapid.IntRange(0, len(b)-1).Draw(t, "byte")] ^= 1
		if _, err := DecodeSum(b, s.Root()); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
	})
}

func FuzzParseSum(f *testing.F) {
	f.Add(newSum(0).Encode())
	f.Add(newSum(3*ChunkSize + 1).Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSum(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if !bytes.Equal(s.Encode(), b) {
			t.Fatal("two encodings of one list")
		}
	})
}
