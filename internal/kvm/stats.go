package kvm

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Stats reads some of the counters that KVM keeps of a processor, such as
// pf_taken, pf_fixed and exits (section 4.133).
type Stats struct {
	fd     int
	fields []statField
	data   []byte // values of all fields
	base   int64  // of data in the file
}

// statField is where the first value of one counter is in the data block.
type statField struct {
	name   string
	offset uint32
}

// ErrStats is wrapped when KVM's counters are not laid out as section 4.133 says,
// or lack one that was asked for.
var ErrStats = errors.New("counters of kvm are not as expected")

// Bounds of what is read: Linux 6.18 has 50 counters of 48 bytes of name.
const (
	maxStats       = 512
	maxStatName    = 256
	statHeaderSize = 24
	statDescSize   = 16 // without the name
)

// OpenStats returns a reader of the named counters. The caller must Close it.
func (c *VCPU) OpenStats(names ...string) (*Stats, error) {
	fd, err := plainIoctl(c.fd, requestGetStatsFD)
	if err != nil {
		return nil, fmt.Errorf("kvm: get counters of vcpu %d: %w", c.id, err)
	}
	unix.CloseOnExec(fd)
	s := &Stats{fd: fd}
	if err := s.describe(names); err != nil {
		s.Close()
		return nil, fmt.Errorf("kvm: get counters of vcpu %d: %w", c.id, err)
	}
	return s, nil
}

func (s *Stats) describe(names []string) error {
	header := make([]byte, statHeaderSize)
	if err := s.read(header, 0); err != nil {
		return err
	}
	h, err := parseStatHeader(header)
	if err != nil {
		return err
	}
	block := make([]byte, int(h.count)*h.descSize())
	if err := s.read(block, int64(h.descs)); err != nil {
		return err
	}
	var size uint32
	if s.fields, size, err = parseStatDescs(h, block, names); err != nil {
		return err
	}
	s.data, s.base = make([]byte, size), int64(h.data)
	return nil
}

func (s *Stats) read(p []byte, offset int64) error {
	n, err := unix.Pread(s.fd, p, offset)
	if err != nil {
		return err
	}
	if n != len(p) {
		return fmt.Errorf("%d bytes at %d of %d: %w", n, offset, len(p), ErrStats)
	}
	return nil
}

// Read returns the counters in the order of the names that OpenStats was given.
func (s *Stats) Read() ([]uint64, error) {
	if err := s.read(s.data, s.base); err != nil {
		return nil, fmt.Errorf("kvm: read counters: %w", err)
	}
	values := make([]uint64, len(s.fields))
	for i, f := range s.fields {
		values[i] = binary.LittleEndian.Uint64(s.data[f.offset:])
	}
	return values, nil
}

// Close gives up the descriptor.
func (s *Stats) Close() error { return unix.Close(s.fd) }

// statHeader is what is used of struct kvm_stats_header.
type statHeader struct{ nameSize, count, descs, data uint32 }

func (h *statHeader) descSize() int { return statDescSize + int(h.nameSize) }

func parseStatHeader(b []byte) (statHeader, error) {
	if len(b) != statHeaderSize {
		return statHeader{}, fmt.Errorf("header of %d bytes: %w", len(b), ErrStats)
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	h := statHeader{nameSize: word(1), count: word(2), descs: word(4), data: word(5)}
	if h.nameSize > maxStatName || h.count > maxStats {
		return h, fmt.Errorf("%d counters with names of %d bytes: %w", h.count, h.nameSize, ErrStats)
	}
	return h, nil
}

// parseStatDescs finds the named counters in the descriptor block. size is how
// much of the data block holds them.
func parseStatDescs(h statHeader, block []byte, names []string) (fields []statField, size uint32, err error) {
	if len(block) != int(h.count)*h.descSize() {
		return nil, 0, fmt.Errorf("descriptors of %d bytes: %w", len(block), ErrStats)
	}
	offsets := make(map[string]uint32)
	for d := block; len(d) > 0; d = d[h.descSize():] {
		name, _, _ := bytes.Cut(d[statDescSize:h.descSize()], []byte{0})
		offsets[string(name)] = binary.LittleEndian.Uint32(d[8:])
	}
	for _, name := range names {
		offset, ok := offsets[name]
		if !ok || offset > maxStats*64 {
			return nil, 0, fmt.Errorf("counter %q: %w", name, ErrStats)
		}
		fields = append(fields, statField{name, offset})
		size = max(size, offset+8)
	}
	return fields, size, nil
}
