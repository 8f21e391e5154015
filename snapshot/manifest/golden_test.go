package manifest

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden file of a version that has none")

// golden sets every field.
func golden() *Manifest {
	m := sample()
	m.Name, m.Labels, m.Pinned = "step 1 ü", map[string]string{"a": "b", "thaw.image": "python"}, true
	m.Merged, m.Origin = []string{idA}, idA
	m.Fingerprint.HostKrn = "6.12"
	m.Record = Record{
		Tracker: "pagemap", Candidates: 9, Pages: 2, ZeroPages: 1, DuplicatePages: 6, DiskBytes: 4096, Freeze: 1, Pause: 2, CopyAhead: 3, Store: 4,
		Bytes: 12345, Depth: 7, Consistent: time.Unix(5, 6).UTC(), Durable: time.Unix(7, 8).UTC(),
	}
	return m
}

// A change of bytes needs a new version, and a golden file more.
func TestGoldenIsWritten(t *testing.T) {
	path := filepath.Join("testdata", "v1.manifest.json")
	b, err := golden().Encode()
	if err != nil {
		t.Fatal(err)
	}
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
		t.Fatal("this program writes another manifest than version 1")
	}
}

// Manifests of every version are read, and mean the same.
func TestGoldenIsRead(t *testing.T) {
	files, err := filepath.Glob("testdata/v*.manifest.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Decode(b)
		if err != nil || !reflect.DeepEqual(m, golden()) {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
	// Nothing is left out: a field that golden does not set would not be kept.
	var check func(v reflect.Value, path string)
	check = func(v reflect.Value, path string) {
		if v.Kind() != reflect.Struct || v.Type() == reflect.TypeFor[time.Time]() {
			if v.IsZero() {
				t.Errorf("golden does not set %s", path)
			}
			return
		}
		for i := range v.NumField() {
			check(v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
	check(reflect.ValueOf(*golden()), "manifest")
}
