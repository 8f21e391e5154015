package pageindex

import (
	"encoding/binary"
	"fmt"
	"math"
)

// The encoding, little-endian; docs/snapshot-format.md has it byte by byte:
//
//	0  "TPIX"   4  version u16 = 1   6  reserved u16 = 0   8  pages u32   12  runs u32
//	16 a run:   uvarint pages since the end of the last run
//	            uvarint count
//	            uvarint source<<1 | jump
//	            jump: varint distance of At from where the source's last run ended
//
// A dense source's runs nearly always follow each other in its file, so a run
// is three or four bytes. Varints are minimal: an index has one encoding.
const (
	magic      = "TPIX"
	version    = 1
	headerSize = 16
	minRun     = 3 // bytes
)

// MaxEncoded bounds the encoding of an index in bytes.
const MaxEncoded = 64 << 20

// Encode returns the index in its binary form.
//
// Preconditions: the index is valid.
func (x *Index) Encode() []byte {
	b := make([]byte, headerSize, headerSize+8*len(x.Runs))
	copy(b, magic)
	binary.LittleEndian.PutUint16(b[4:], version)
	binary.LittleEndian.PutUint32(b[8:], x.Pages)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(x.Runs)))
	var end uint32
	var next places
	for _, r := range x.Runs {
		b = binary.AppendUvarint(b, uint64(r.First-end))
		b = binary.AppendUvarint(b, uint64(r.Count))
		end = r.End()
		jump := int64(0)
		if r.Dense() {
			jump = int64(r.At) - int64(next.get(r.Source))
			next.set(r.Source, r.At+r.Count)
		}
		if jump == 0 {
			b = binary.AppendUvarint(b, uint64(r.Source)<<1)
			continue
		}
		b = binary.AppendUvarint(b, uint64(r.Source)<<1|1)
		b = binary.AppendVarint(b, jump)
	}
	return b
}

// Decode reads an index of a memory of at most maxPages pages. Where the runs
// point in their files is left to Validate. Every error wraps ErrIndex.
func Decode(b []byte, maxPages uint32) (*Index, error) {
	x, err := decode(b, maxPages)
	if err != nil {
		return nil, fmt.Errorf("pageindex: decode: %w: %w", err, ErrIndex)
	}
	return x, nil
}

func decode(b []byte, maxPages uint32) (*Index, error) {
	if len(b) < headerSize || string(b[:4]) != magic {
		return nil, fmt.Errorf("no index in %d bytes", len(b))
	}
	if len(b) > MaxEncoded {
		return nil, fmt.Errorf("%d bytes, more than %d", len(b), MaxEncoded)
	}
	if v, r := binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:]); v != version || r != 0 {
		return nil, fmt.Errorf("version %d.%d, not %d.0", v, r, version)
	}
	x := &Index{Pages: binary.LittleEndian.Uint32(b[8:])}
	n := binary.LittleEndian.Uint32(b[12:])
	rest := b[headerSize:]
	if x.Pages > maxPages {
		return nil, fmt.Errorf("memory of %d pages, more than %d", x.Pages, maxPages)
	}
	// Before memory is taken for the runs: they must be there.
	if uint64(n)*minRun > uint64(len(rest)) {
		return nil, fmt.Errorf("%d runs in %d bytes", n, len(rest))
	}
	x.Runs = make([]Run, 0, n)
	d := decoder{rest: rest}
	for range n {
		r, err := d.run()
		if err != nil {
			return nil, fmt.Errorf("run %d: %w", len(x.Runs), err)
		}
		if err := x.checkRun(r, uint64(d.end)); err != nil {
			return nil, fmt.Errorf("run %d: %w", len(x.Runs), err)
		}
		d.end = r.End()
		x.Runs = append(x.Runs, r)
	}
	if len(d.rest) != 0 {
		return nil, fmt.Errorf("%d bytes after the last run", len(d.rest))
	}
	return x, nil
}

// decoder reads runs off rest.
type decoder struct {
	rest []byte
	end  uint32 // where the last run ended in memory
	next places // and in its file
}

// run reads the next run, without checking it but for the range of its numbers.
func (d *decoder) run() (Run, error) {
	gap, err := d.uvarint(math.MaxUint32)
	if err != nil {
		return Run{}, err
	}
	count, err := d.uvarint(math.MaxUint32)
	if err != nil {
		return Run{}, err
	}
	tag, err := d.uvarint(math.MaxUint16<<1 | 1)
	if err != nil {
		return Run{}, err
	}
	first := uint64(d.end) + gap
	if first+count > math.MaxUint32 {
		return Run{}, fmt.Errorf("page %d is out of range", first+count)
	}
	r := Run{First: uint32(first), Count: uint32(count), Source: uint16(tag >> 1)}
	switch {
	case r.Dense():
		at := int64(d.next.get(r.Source))
		if tag&1 != 0 {
			jump, err := d.varint()
			if err != nil {
				return Run{}, err
			}
			at += jump
		}
		if at < 0 || at+int64(r.Count) > math.MaxUint32 {
			return Run{}, fmt.Errorf("page %d of source %d is out of range", at, r.Source)
		}
		r.At = uint32(at)
		d.next.set(r.Source, r.At+r.Count)
	case tag&1 != 0:
		return Run{}, fmt.Errorf("a jump in source %d", r.Source)
	case r.Source == Base:
		r.At = r.First
	}
	return r, nil
}

// uvarint reads a minimal uvarint of at most limit.
func (d *decoder) uvarint(limit uint64) (uint64, error) {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > limit || (n > 1 && d.rest[n-1] == 0) {
		return 0, fmt.Errorf("bad number")
	}
	d.rest = d.rest[n:]
	return v, nil
}

// varint reads a minimal varint that is not 0, within 33 bits.
func (d *decoder) varint() (int64, error) {
	v, n := binary.Varint(d.rest)
	if n <= 0 || v == 0 || v > math.MaxUint32 || v < -math.MaxUint32 || (n > 1 && d.rest[n-1] == 0) {
		return 0, fmt.Errorf("bad jump")
	}
	d.rest = d.rest[n:]
	return v, nil
}

// places is where the last run of each dense source ended in its file. It grows
// with the highest source named, at most 256 KiB.
type places []uint32

func (p places) get(source uint16) uint32 {
	if i := int(source) - FirstOverlay; i < len(p) {
		return p[i]
	}
	return 0
}

func (p *places) set(source uint16, at uint32) {
	i := int(source) - FirstOverlay
	if i >= len(*p) {
		*p = append(*p, make([]uint32, i+1-len(*p))...)
	}
	(*p)[i] = at
}
