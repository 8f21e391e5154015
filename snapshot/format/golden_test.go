package format

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"thaw/snapshot/pageindex"
)

var update = flag.Bool("update", false, "write the golden file of a version that has none")

// goldenState stands for the states of machines: each kind of field they have.
type goldenState struct {
	VCPUs   int               `cbor:"vcpus"`
	Clock   uint64            `cbor:"clock"`
	Name    string            `cbor:"name"`
	Regs    []byte            `cbor:"regs"`
	MSRs    [][2]uint64       `cbor:"msrs"`
	Devices map[string][]byte `cbor:"devices"`
}

var golden = goldenState{
	VCPUs: 2, Clock: 1<<63 + 5, Name: "thaw", Regs: []byte{0, 1, 2, 254, 255},
	MSRs: [][2]uint64{{0x10, 1 << 40}, {0x4b564d10, 7}}, Devices: map[string][]byte{"vda": {1}, "net": nil},
}

func goldenIndex() *pageindex.Index {
	return &pageindex.Index{Pages: 1 << 17, Runs: []pageindex.Run{
		{First: 16, Count: 3, Source: pageindex.FirstOverlay, At: 0},
		{First: 20, Count: 1},
		{First: 100, Count: 300, Source: pageindex.FirstOverlay, At: 3},
		{First: 500, Count: 2, Source: pageindex.FirstOverlay, At: 1},
	}}
}

func goldenFile(t *testing.T) []byte {
	var w Writer
	if err := w.AddCBOR(SectionMachine, golden); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(SectionMemory, goldenIndex().Encode()); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// The format of this version is what it was when its golden file was made. A
// change of bytes needs a new version and a golden file more.
func TestGoldenIsWritten(t *testing.T) {
	path := filepath.Join("testdata", "v1.0.state")
	b := goldenFile(t)
	if _, err := os.Stat(path); *update && os.IsNotExist(err) {
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Fatal("this program writes other bytes than format 1.0")
	}
}

// Files of every earlier version are still read, and mean the same.
func TestGoldenIsRead(t *testing.T) {
	files, err := filepath.Glob("testdata/v*.state")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		file, err := Read(f, Limits{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got goldenState
		if err := file.CBOR(SectionMachine, &got); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(got, golden) {
			t.Fatalf("%s: %+v", name, got)
		}
		b, err := file.Section(SectionMemory)
		if err != nil {
			t.Fatal(err)
		}
		x, err := pageindex.Decode(b, 1<<17)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(x, goldenIndex()) {
			t.Fatalf("%s: %+v", name, x)
		}
	}
}
