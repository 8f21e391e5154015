package pageindex

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write the golden file of a version that has none")

// golden has each kind of run: with and without a jump, far and back, zero and base.
var golden = &Index{Pages: 1 << 18, Runs: []Run{
	{First: 0, Count: 1, Source: Base, At: 0},
	{First: 7, Count: 4, Source: FirstOverlay, At: 0},
	{First: 11, Count: 300, Source: FirstOverlay + 1, At: 70000},
	{First: 400, Count: 2, Source: FirstOverlay, At: 4},
	{First: 500, Count: 9},
	{First: 600, Count: 1, Source: FirstOverlay + 1, At: 3},
	{First: 90000, Count: 1000, Source: Base, At: 90000},
	{First: 1<<18 - 1, Count: 1, Source: FirstOverlay + 200, At: 0},
}}

// A change of bytes needs a new version, and a golden file more.
func TestGoldenIsWritten(t *testing.T) {
	path := filepath.Join("testdata", "v1.index")
	b := golden.Encode()
	if _, err := os.Stat(path); *update && errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Fatal("this program writes other bytes than version 1")
	}
}

// Files of every version are read, and mean the same.
func TestGoldenIsRead(t *testing.T) {
	files, err := filepath.Glob("testdata/v*.index")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		x, err := Decode(b, golden.Pages)
		if err != nil || !reflect.DeepEqual(x, golden) {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
}
