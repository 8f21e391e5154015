package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// sample is a file of three sections, one of them empty.
func sample(t testing.TB) []byte {
	t.Helper()
	var w Writer
	if err := w.AddCBOR(SectionMachine, map[string]any{"vcpus": 2, "clock": []byte{1, 2, 3}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Add("empty", nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(SectionMemory, []byte("not an index")); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if n, err := w.WriteTo(&b); err != nil || n != w.Size() || n != int64(b.Len()) {
		t.Fatalf("wrote %d of %d: %v", n, w.Size(), err)
	}
	return b.Bytes()
}

func read(b []byte) (*File, error) { return Read(bytes.NewReader(b), Limits{}) }

func typed(err error) bool {
	for _, e := range []error{ErrFormat, ErrVersion, ErrArchitecture, ErrDigest} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func TestRoundTrip(t *testing.T) {
	b := sample(t)
	f, err := read(append(bytes.Clone(b), "what follows in the memfd"...))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(f.Names(), " "); got != "machine empty memory" || f.Size != int64(len(b)) {
		t.Fatalf("%s, %d bytes", got, f.Size)
	}
	var m struct {
		VCPUs int    `cbor:"vcpus"`
		Clock []byte `cbor:"clock"`
	}
	if err := f.CBOR(SectionMachine, &m); err != nil || m.VCPUs != 2 || len(m.Clock) != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	if s, err := f.Section("empty"); err != nil || len(s) != 0 {
		t.Fatalf("%q, %v", s, err)
	}
	if _, err := f.Section("nothing"); !errors.Is(err, ErrSection) {
		t.Fatal(err)
	}
	if err := f.CBOR(SectionMemory, &m); !errors.Is(err, ErrFormat) {
		t.Fatal(err)
	}
}

// Every bit of the header and every byte of the sections is under a digest.
func TestEveryFlipIsFound(t *testing.T) {
	b := sample(t)
	for i := range b {
		b[i] ^= 1 << (i % 8)
		if _, err := read(b); !typed(err) {
			t.Fatalf("byte %d: %v", i, err)
		}
		b[i] ^= 1 << (i % 8)
	}
	for _, n := range []int{0, 1, 7, HeaderSize - 1, HeaderSize, len(b) - 1} {
		if _, err := read(b[:n]); !errors.Is(err, ErrDigest) && !errors.Is(err, ErrFormat) {
			t.Errorf("cut at %d: %v", n, err)
		}
	}
}

// A section's digest is all that Verified leaves out.
func TestVerifiedSkipsSectionsOnly(t *testing.T) {
	b := sample(t)
	b[len(b)-1] ^= 1
	if _, err := Read(bytes.NewReader(b), Limits{Verified: true}); err != nil {
		t.Fatal(err)
	}
	b[100] ^= 1
	if _, err := Read(bytes.NewReader(b), Limits{Verified: true}); !errors.Is(err, ErrDigest) {
		t.Fatal(err)
	}
}

// A hostile writer can make the digests right.
func TestHeaderIsChecked(t *testing.T) {
	le := binary.LittleEndian
	entry := func(i int) int { return offTable + i*entrySize }
	for name, c := range map[string]struct {
		edit func(b []byte)
		want error
	}{
		"architecture":     {func(b []byte) { le.PutUint16(b[offArch:], 2) }, ErrArchitecture},
		"newer major":      {func(b []byte) { le.PutUint16(b[offMajor:], 2) }, ErrVersion},
		"older major":      {func(b []byte) { le.PutUint16(b[offMajor:], 0) }, ErrVersion},
		"newer minor":      {func(b []byte) { le.PutUint16(b[offMinor:], Minor+1) }, ErrVersion},
		"count":            {func(b []byte) { le.PutUint16(b[offCount:], 17) }, ErrFormat},
		"fewer sections":   {func(b []byte) { le.PutUint16(b[offCount:], 2) }, ErrFormat},
		"more sections":    {func(b []byte) { le.PutUint16(b[offCount:], 4) }, ErrFormat},
		"huge total":       {func(b []byte) { le.PutUint64(b[offTotal:], 1<<63) }, ErrFormat},
		"reserved":         {func(b []byte) { b[offTotal+8] = 1 }, ErrFormat},
		"after the table":  {func(b []byte) { b[endOfTable+1] = 1 }, ErrFormat},
		"overlap":          {func(b []byte) { le.PutUint64(b[entry(1)+entOffset:], HeaderSize) }, ErrFormat},
		"negative offset":  {func(b []byte) { le.PutUint64(b[entry(1)+entOffset:], 1<<63) }, ErrFormat},
		"huge length":      {func(b []byte) { le.PutUint64(b[entry(1)+entLength:], 1<<63) }, ErrFormat},
		"section too long": {func(b []byte) { le.PutUint64(b[entry(2)+entLength:], 1000) }, ErrFormat},
		"same name":        {func(b []byte) { copy(b[entry(1):], "machine\x00") }, ErrFormat},
		"no name":          {func(b []byte) { b[entry(1)] = 0 }, ErrFormat},
		"odd name":         {func(b []byte) { b[entry(1)] = '/' }, ErrFormat},
		"name goes on":     {func(b []byte) { b[entry(1)+20] = 'x' }, ErrFormat},
		"endless name":     {func(b []byte) { copy(b[entry(1):], strings.Repeat("x", nameField)) }, ErrFormat},
	} {
		b := sample(t)
		c.edit(b)
		sum := sha256.Sum256(b[:offDigest])
		copy(b[offDigest:], sum[:])
		if _, err := read(b); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWriterBounds(t *testing.T) {
	var w Writer
	for _, name := range []string{"", "Upper", "with space", "../x", strings.Repeat("x", MaxName+1)} {
		if err := w.Add(name, nil); !errors.Is(err, ErrFormat) {
			t.Errorf("name %q: %v", name, err)
		}
	}
	for i := range MaxSections {
		if err := w.Add(fmt.Sprint("s", i), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add("one-more", nil); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if err := w.Add("s0", nil); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	w = Writer{}
	if err := w.Add("big", make([]byte, MaxFile-HeaderSize+1)); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
	if err := w.Add("big", make([]byte, MaxFile-HeaderSize)); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if _, err := w.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if _, err := read(b.Bytes()); err != nil {
		t.Error(err)
	}
	if _, err := Read(bytes.NewReader(b.Bytes()), Limits{File: 1 << 20}); !errors.Is(err, ErrFormat) {
		t.Error(err)
	}
}

func TestUnmarshalIsStrict(t *testing.T) {
	type state struct {
		A int   `cbor:"a"`
		B []int `cbor:"b"`
	}
	good, err := Marshal(state{A: 1, B: []int{2}})
	if err != nil {
		t.Fatal(err)
	}
	var s state
	if err := Unmarshal(good, &s); err != nil || s.A != 1 {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"unknown field": {0xa1, 0x61, 'c', 0x01},
		"double key":    {0xa2, 0x61, 'a', 0x01, 0x61, 'a', 0x02},
		"endless array": {0xa1, 0x61, 'b', 0x9f, 0x01, 0xff},
		"tag":           {0xa1, 0x61, 'a', 0xc2, 0x41, 1},
		"huge array":    {0xa1, 0x61, 'b', 0x9b, 0, 0, 0, 1, 0, 0, 0, 0},
		"trailing":      append(bytes.Clone(good), 0),
		"cut":           good[:len(good)-1],
		"wrong type":    {0xa1, 0x61, 'a', 0x61, 'x'},
		"empty":         {},
	} {
		if err := Unmarshal(b, &state{}); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type failing struct{ io.ReaderAt }

func (failing) ReadAt([]byte, int64) (int, error) { return 0, io.ErrClosedPipe }

func TestReaderErrorsPass(t *testing.T) {
	if _, err := Read(failing{}, Limits{}); !errors.Is(err, io.ErrClosedPipe) || typed(err) {
		t.Fatal(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(sample(f))
	f.Fuzz(func(t *testing.T, b []byte) {
		// Right digests let the fuzzer past them: first the header's own.
		b = bytes.Clone(b)
		if len(b) >= HeaderSize {
			sum := sha256.Sum256(b[:offDigest])
			copy(b[offDigest:], sum[:])
		}
		file, err := Read(bytes.NewReader(b), Limits{Verified: true})
		if err != nil {
			if !typed(err) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		var w Writer
		for _, name := range file.Names() {
			s, err := file.Section(name)
			if err != nil {
				t.Fatal(err)
			}
			var v any
			if err := Unmarshal(s, &v); err != nil && !errors.Is(err, ErrFormat) {
				t.Fatal(err)
			}
			if err := w.Add(name, s); err != nil {
				t.Fatal(err)
			}
		}
		if w.Size() != file.Size {
			t.Fatalf("%d bytes, then %d", file.Size, w.Size())
		}
	})
}
