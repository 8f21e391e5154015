package format

import (
	"crypto/sha256"
	"fmt"
	"io"
)

// Writer collects sections and writes them as one file. The zero Writer is ready.
type Writer struct {
	entries []entry
	parts   [][]byte
	size    int64 // of the sections
}

// Add appends a section. The payload must not change until WriteTo has returned.
// The error wraps ErrFormat if the name is bad or taken, or a bound is broken.
func (w *Writer) Add(name string, payload []byte) error {
	if !validName(name) {
		return fmt.Errorf("format: section name %q: %w", name, ErrFormat)
	}
	for _, e := range w.entries {
		if e.name == name {
			return fmt.Errorf("format: section %q twice: %w", name, ErrFormat)
		}
	}
	size := w.size + int64(len(payload))
	if len(w.entries) == MaxSections || len(payload) > MaxSection || HeaderSize+size > MaxFile {
		return fmt.Errorf("format: section %q of %d bytes, %d sections of %d bytes before it: too much: %w",
			name, len(payload), len(w.entries), w.size, ErrFormat)
	}
	w.entries = append(w.entries, entry{
		name: name, offset: HeaderSize + w.size, length: int64(len(payload)), digest: sha256.Sum256(payload),
	})
	w.parts = append(w.parts, payload)
	w.size = size
	return nil
}

// AddCBOR is Add of v in CBOR.
func (w *Writer) AddCBOR(name string, v any) error {
	b, err := Marshal(v)
	if err != nil {
		return err
	}
	return w.Add(name, b)
}

// Size is the file's size in bytes.
func (w *Writer) Size() int64 { return HeaderSize + w.size }

// WriteTo writes the file to f and returns its size in bytes.
func (w *Writer) WriteTo(f io.Writer) (int64, error) {
	var n int64
	for _, part := range append([][]byte{encodeHeader(X86_64, w.entries, w.Size())}, w.parts...) {
		m, err := f.Write(part)
		n += int64(m)
		if err != nil {
			return n, fmt.Errorf("format: write state file: %w", err)
		}
	}
	return n, nil
}
