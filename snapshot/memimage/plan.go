package memimage

import (
	"encoding/binary"
	"fmt"

	"thaw/snapshot/pageindex"
)

// Plan says how an image is made. It travels from the daemon to the VMM.
type Plan struct {
	// Base has the runs of the base that hold data: they are what is mapped.
	Base *pageindex.Index
	// Memory says where each page is. A page of the base that no run has was
	// overwritten with zeros.
	Memory *pageindex.Index
	// Hot has pages that the guest is going to write: made its own ahead.
	// Sources mean nothing.
	Hot *pageindex.Index
}

// Encode returns the plan's bytes: three indexes, each after its length
// (32 bits, little endian).
func (p Plan) Encode() []byte {
	var b []byte
	for _, x := range []*pageindex.Index{p.Base, p.Memory, p.Hot} {
		if x == nil {
			x = &pageindex.Index{Pages: p.Memory.Pages}
		}
		e := x.Encode()
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(e))), e...)
	}
	return b
}

// DecodePlan reads what Encode wrote, of a memory of at most maxPages. Errors
// wrap ErrImage.
func DecodePlan(b []byte, maxPages uint32) (Plan, error) {
	var p Plan
	for _, part := range []struct {
		name string
		to   **pageindex.Index
	}{{"base", &p.Base}, {"memory", &p.Memory}, {"hot pages", &p.Hot}} {
		if len(b) < 4 {
			return Plan{}, fmt.Errorf("memimage: plan ends before its %s: %w", part.name, ErrImage)
		}
		n := binary.LittleEndian.Uint32(b)
		if b = b[4:]; uint64(n) > uint64(len(b)) {
			return Plan{}, fmt.Errorf("memimage: plan ends in its %s: %w", part.name, ErrImage)
		}
		x, err := pageindex.Decode(b[:n], maxPages)
		if err != nil {
			return Plan{}, fmt.Errorf("memimage: decode %s of plan: %w: %w", part.name, err, ErrImage)
		}
		*part.to, b = x, b[n:]
	}
	if len(b) > 0 {
		return Plan{}, fmt.Errorf("memimage: %d bytes after the plan: %w", len(b), ErrImage)
	}
	return p, nil
}
