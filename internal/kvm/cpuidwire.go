package kvm

import (
	"encoding/binary"
	"fmt"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// CPUIDBytes is the size of an entry as EncodeCPUID makes it, MaxCPUID the most entries there are: KVM
// answers E2BIG when it has more.
const (
	CPUIDBytes = 7 * 4
	MaxCPUID   = 256
)

// EncodeCPUID makes bytes of entries, for another process: numbers of 32 bits, little endian.
func EncodeCPUID(entries []gokvm.CPUIDEntry2) []byte {
	b := make([]byte, 0, len(entries)*CPUIDBytes)
	for _, e := range entries {
		for _, n := range []uint32{e.Function, e.Index, e.Flags, e.Eax, e.Ebx, e.Ecx, e.Edx} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
	}
	return b
}

// DecodeCPUID is the inverse of EncodeCPUID.
func DecodeCPUID(b []byte) ([]gokvm.CPUIDEntry2, error) {
	if len(b)%CPUIDBytes != 0 || len(b) > MaxCPUID*CPUIDBytes {
		return nil, fmt.Errorf("kvm: cpuid of %d bytes", len(b))
	}
	entries := make([]gokvm.CPUIDEntry2, len(b)/CPUIDBytes)
	for i := range entries {
		e := &entries[i]
		for _, n := range []*uint32{&e.Function, &e.Index, &e.Flags, &e.Eax, &e.Ebx, &e.Ecx, &e.Edx} {
			*n, b = binary.LittleEndian.Uint32(b), b[4:]
		}
	}
	return entries, nil
}
