package kvm

import (
	"encoding/binary"
	"errors"
	"testing"
)

func TestStats(t *testing.T) {
	r := newRig(t, nil)
	r.start(t, writePages)
	s, err := r.vcpu.OpenStats("exits", "pf_taken", "pf_fixed")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.runToPort(t)
	v, err := s.Read()
	if err != nil || len(v) != 3 || v[0] == 0 {
		t.Errorf("counters %v, %v", v, err)
	}
	if _, err := r.vcpu.OpenStats("no_such_counter"); !errors.Is(err, ErrStats) {
		t.Errorf("unknown counter: %v", err)
	}
}

// statBlock describes counters called a and b, at 8 and 0.
func statBlock() []byte {
	const nameSize = 4
	b := make([]byte, 2*(statDescSize+nameSize))
	binary.LittleEndian.PutUint32(b[8:], 8)
	b[16] = 'a'
	b[20+16] = 'b'
	return b
}

func TestParseStats(t *testing.T) {
	h := statHeader{nameSize: 4, count: 2}
	fields, size, err := parseStatDescs(h, statBlock(), []string{"b", "a"})
	if err != nil || size != 16 || fields[0].offset != 0 || fields[1].offset != 8 {
		t.Errorf("fields %v, %d bytes, %v", fields, size, err)
	}
	if _, _, err := parseStatDescs(h, statBlock()[1:], nil); !errors.Is(err, ErrStats) {
		t.Errorf("short block: %v", err)
	}
	if _, err := parseStatHeader(make([]byte, 23)); !errors.Is(err, ErrStats) {
		t.Errorf("short header: %v", err)
	}
}

func FuzzStats(f *testing.F) {
	header := make([]byte, statHeaderSize)
	binary.LittleEndian.PutUint32(header[4:], 4)
	binary.LittleEndian.PutUint32(header[8:], 2)
	f.Add(header, statBlock())
	f.Fuzz(func(t *testing.T, header, block []byte) {
		h, err := parseStatHeader(header)
		if err != nil {
			return
		}
		fields, size, err := parseStatDescs(h, block, []string{"a", "b"})
		if err != nil {
			return
		}
		for _, field := range fields {
			if field.offset+8 > size || size > maxStats*64+8 {
				t.Fatalf("counter at %d of %d bytes", field.offset, size)
			}
		}
	})
}
