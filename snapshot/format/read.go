package format

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// Limits says what a reader takes. The zero value stands for the bounds of the
// format itself.
type Limits struct {
	// File is the most that the file may have, in bytes; 0: MaxFile.
	File int64
	// Verified leaves out the sections' digests: the caller, or who gave it the
	// file, has verified these bytes before. The header's is always verified.
	Verified bool
}

// File is a state file in memory.
type File struct {
	Architecture Architecture
	Major, Minor uint16
	Size         int64 // bytes of header and sections; the reader may hold more

	names    []string
	sections map[string][]byte
}

// Read reads the state file at the start of r and verifies it. What follows the
// file in r is left alone. Errors wrap ErrFormat, ErrVersion, ErrArchitecture or
// ErrDigest, or are those of r.
func Read(r io.ReaderAt, limits Limits) (*File, error) {
	var head [HeaderSize]byte
	if err := readFull(r, head[:], 0); err != nil {
		return nil, fmt.Errorf("format: read header: %w", err)
	}
	h, err := decodeHeader(head[:])
	if err != nil {
		return nil, fmt.Errorf("format: %w", err)
	}
	if h.arch != X86_64 {
		return nil, fmt.Errorf("format: architecture %d, not %d: %w", h.arch, X86_64, ErrArchitecture)
	}
	if limits.File > 0 && h.total > limits.File {
		return nil, fmt.Errorf("format: %d bytes, more than %d: %w", h.total, limits.File, ErrFormat)
	}
	f := &File{Architecture: h.arch, Major: h.major, Minor: h.minor, Size: h.total, sections: map[string][]byte{}}
	body := make([]byte, h.total-HeaderSize)
	if err := readFull(r, body, HeaderSize); err != nil {
		return nil, fmt.Errorf("format: read sections: %w", err)
	}
	for _, e := range h.entries {
		from := e.offset - HeaderSize
		b := body[from : from+e.length : from+e.length]
		if !limits.Verified && sha256.Sum256(b) != e.digest {
			return nil, fmt.Errorf("format: section %q: %w", e.name, ErrDigest)
		}
		f.names = append(f.names, e.name)
		f.sections[e.name] = b
	}
	return f, nil
}

// readFull fills b from off. A file that ends before is damaged.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	if len(b) == 0 {
		return nil
	}
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%d bytes of %d at %d: %w", n, len(b), off, ErrDigest)
	}
	return err
}

// Names lists the sections in the order of the file.
func (f *File) Names() []string { return append([]string(nil), f.names...) }

// Section returns a section's bytes, which are the file's own: they must not be
// changed. The error wraps ErrSection.
func (f *File) Section(name string) ([]byte, error) {
	b, ok := f.sections[name]
	if !ok {
		return nil, fmt.Errorf("format: section %q: %w", name, ErrSection)
	}
	return b, nil
}

// CBOR decodes a section into v. The error wraps ErrSection or ErrFormat.
func (f *File) CBOR(name string, v any) error {
	b, err := f.Section(name)
	if err != nil {
		return err
	}
	if err := Unmarshal(b, v); err != nil {
		return fmt.Errorf("format: section %q: %w", name, err)
	}
	return nil
}
