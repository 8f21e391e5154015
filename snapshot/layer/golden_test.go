package layer

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write the golden file of a version that has none")

// goldenLayer has a whole chunk, one of zeros, and a short one.
func goldenLayer() []byte {
	b := make([]byte, 2*ChunkSize+5000)
	for i := range ChunkSize {
		b[i] = byte(i * i >> 7)
	}
	b[len(b)-1] = 1
	return b
}

// A change of bytes needs a new version, and a golden file more.
func TestGoldenIsWritten(t *testing.T) {
	path := filepath.Join("testdata", "v1.sum")
	b := goldenLayer()
	s, err := Measure(context.Background(), file(t, b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, s.Encode(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(s.Encode(), want) {
		t.Fatal("this program writes other digests than version 1")
	}
}

// Lists of every version are read, and verify the layer.
func TestGoldenIsRead(t *testing.T) {
	files, err := filepath.Glob("testdata/v*.sum")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	b := goldenLayer()
	for _, name := range files {
		list, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		s, err := parseSum(list)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if err := Verify(context.Background(), file(t, b), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A small chunk of version 1 is read, whatever the compressor of this program writes.
func TestGoldenSmallChunk(t *testing.T) {
	path := filepath.Join("testdata", "v1.small")
	b := goldenLayer()[:ChunkSize]
	if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(writeSmall(f, b, 0), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(stored) > 100<<10 {
		t.Fatalf("%d bytes are not small", len(stored))
	}
	ok, err := plain(append(stored, make([]byte, ChunkSize-len(stored))...), digest(b), func(got []byte) error {
		if !bytes.Equal(got, b) {
			t.Error("it was read as something else")
		}
		return nil
	})
	if !ok || err != nil {
		t.Fatalf("%t, %v", ok, err)
	}
}
