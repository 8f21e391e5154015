package format

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

const magic = "THAWSNAP"

// Layout of the header, little-endian.
const (
	offArch    = 8  // u16
	offMajor   = 10 // u16
	offMinor   = 12 // u16
	offCount   = 14 // u16, sections
	offTotal   = 16 // u64, bytes of the file
	offTable   = 32 // MaxSections entries; zeros from here on where there is none
	entrySize  = 80
	offDigest  = HeaderSize - sha256.Size
	entName    = 0  // 32 bytes, filled up with zeros
	entOffset  = 32 // u64, from the start of the file
	entLength  = 40 // u64
	entDigest  = 48 // SHA-256
	nameField  = MaxName + 1
	endOfTable = offTable + MaxSections*entrySize
)

// entry is one line of the section table.
type entry struct {
	name           string
	offset, length int64
	digest         [sha256.Size]byte
}

// encodeHeader returns the header of a file with these sections.
func encodeHeader(arch Architecture, entries []entry, total int64) []byte {
	b := make([]byte, HeaderSize)
	le := binary.LittleEndian
	copy(b, magic)
	le.PutUint16(b[offArch:], uint16(arch))
	le.PutUint16(b[offMajor:], Major)
	le.PutUint16(b[offMinor:], Minor)
	le.PutUint16(b[offCount:], uint16(len(entries)))
	le.PutUint64(b[offTotal:], uint64(total))
	for i, e := range entries {
		at := b[offTable+i*entrySize:]
		copy(at[entName:], e.name)
		le.PutUint64(at[entOffset:], uint64(e.offset))
		le.PutUint64(at[entLength:], uint64(e.length))
		copy(at[entDigest:], e.digest[:])
	}
	sum := sha256.Sum256(b[:offDigest])
	copy(b[offDigest:], sum[:])
	return b
}

// header is what decodeHeader found.
type header struct {
	arch         Architecture
	major, minor uint16
	entries      []entry
	total        int64
}

// decodeHeader reads and checks a header. A header of another program's file is
// ErrFormat, a damaged one ErrDigest; only then is its version looked at.
func decodeHeader(b []byte) (header, error) {
	if len(b) != HeaderSize || string(b[:len(magic)]) != magic {
		return header{}, fmt.Errorf("no header: %w", ErrFormat)
	}
	if sum := sha256.Sum256(b[:offDigest]); !bytes.Equal(sum[:], b[offDigest:]) {
		return header{}, fmt.Errorf("header: %w", ErrDigest)
	}
	le := binary.LittleEndian
	h := header{
		arch:  Architecture(le.Uint16(b[offArch:])),
		major: le.Uint16(b[offMajor:]), minor: le.Uint16(b[offMinor:]),
	}
	if h.major != Major || h.minor > Minor {
		return header{}, fmt.Errorf("version %d.%d, this program reads %d.0 to %d.%d: %w", h.major, h.minor, Major, Major, Minor, ErrVersion)
	}
	count := int(le.Uint16(b[offCount:]))
	if count > MaxSections {
		return header{}, fmt.Errorf("%d sections, more than %d: %w", count, MaxSections, ErrFormat)
	}
	if total := le.Uint64(b[offTotal:]); total <= MaxFile {
		h.total = int64(total)
	} else {
		return header{}, fmt.Errorf("%d bytes, more than %d: %w", total, MaxFile, ErrFormat)
	}
	if !zero(b[offTotal+8:offTable]) || !zero(b[offTable+count*entrySize:offDigest]) {
		return header{}, fmt.Errorf("reserved bytes are not zero: %w", ErrFormat)
	}
	if err := h.decodeTable(b[offTable:endOfTable], count); err != nil {
		return header{}, err
	}
	return h, nil
}

// decodeTable reads count entries, which must be of different names and follow
// each other from the header to the end of the file.
func (h *header) decodeTable(table []byte, count int) error {
	end := int64(HeaderSize)
	seen := map[string]bool{}
	for i := range count {
		b := table[i*entrySize:][:entrySize]
		name, padding, _ := bytes.Cut(b[entName:entName+nameField], []byte{0})
		e := entry{name: string(name), digest: [sha256.Size]byte(b[entDigest:])}
		if !validName(e.name) || len(name) == nameField || !zero(padding) || seen[e.name] {
			return fmt.Errorf("section %d is named %q: %w", i, e.name, ErrFormat)
		}
		seen[e.name] = true
		offset, length := binary.LittleEndian.Uint64(b[entOffset:]), binary.LittleEndian.Uint64(b[entLength:])
		if offset != uint64(end) || length > MaxSection {
			return fmt.Errorf("section %q of %d bytes at %d: %w", e.name, length, offset, ErrFormat)
		}
		e.offset, e.length = int64(offset), int64(length)
		end += e.length
		h.entries = append(h.entries, e)
	}
	if end != h.total {
		return fmt.Errorf("sections end at %d in a file of %d bytes: %w", end, h.total, ErrFormat)
	}
	return nil
}

// validName says whether a section may have this name: 1 to MaxName characters of
// a to z, 0 to 9, dot and hyphen.
func validName(name string) bool {
	if len(name) == 0 || len(name) > MaxName {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

func zero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
