// Package guestmem is the only way into a guest's physical memory.
//
// Memory maps one file (a memfd the daemon made) and knows where the guest
// sees it: RAM fills the address space from zero, leaves out the hole that
// x86 keeps for devices below 4 GiB, and goes on at 4 GiB. Every access names
// a guest physical address and is checked against that layout, overflow
// included; nothing else in the VMM turns a guest's number into a pointer.
//
// What a Slice points at is shared with a hostile guest: it may change
// between two reads. Copy once, validate the copy, use the copy.
package guestmem

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

const (
	// PageSize is the unit of dirty tracking, in bytes.
	PageSize = 4096
	// HoleStart is where RAM below 4 GiB ends at the latest; devices, the
	// I/O APIC and the local APIC live between it and HoleEnd.
	HoleStart = 0xc000_0000
	// HoleEnd is where RAM goes on.
	HoleEnd = 1 << 32
)

// ErrOutOfRange is wrapped by every error of an access outside of RAM.
var ErrOutOfRange = errors.New("address outside of guest memory")

// Region is one run of RAM as the guest sees it, in bytes.
type Region struct {
	Base   uint64 // guest physical address
	Size   uint64
	Offset uint64 // of its first byte in the backing file and in the mapping
}

// Layout says where the guest sees size bytes of RAM.
func Layout(size uint64) []Region {
	if size <= HoleStart {
		return []Region{{Base: 0, Size: size}}
	}
	return []Region{
		{Base: 0, Size: HoleStart},
		{Base: HoleEnd, Size: size - HoleStart, Offset: HoleStart},
	}
}

// Memory is a guest's RAM. Its methods may be called from any goroutine.
type Memory struct {
	host    []byte
	raw     []byte   // what was mapped, host or more
	file    *os.File // that host maps; nil for reserved memory
	owned   bool     // file is ours to close
	laid    []laid   // files over reserved memory
	regions []Region
	dirty   atomic.Pointer[Bitmap]
	staged  atomic.Bool
}

// Regions returns the layout, lowest address first.
func (m *Memory) Regions() []Region { return m.regions }

// Size is the amount of RAM in bytes.
func (m *Memory) Size() uint64 { return uint64(len(m.host)) }

// Host is all of the memory, by offset in the backing file: for those who save
// and restore it. What it points at is shared with a hostile guest.
func (m *Memory) Host() []byte { return m.host }

// Slice returns the n bytes at guest physical address gpa for reading. The
// bytes are the guest's own memory, not a copy. A range that is not wholly
// inside one region gives an error that wraps ErrOutOfRange.
func (m *Memory) Slice(gpa, n uint64) ([]byte, error) {
	off, err := m.offset(gpa, n)
	if err != nil {
		return nil, err
	}
	return m.host[off : off+n : off+n], nil
}

// ReadAt fills p from guest physical address gpa.
func (m *Memory) ReadAt(p []byte, gpa uint64) error {
	b, err := m.Slice(gpa, uint64(len(p)))
	if err != nil {
		return err
	}
	copy(p, b)
	return nil
}

// WriteAt copies p to guest physical address gpa and marks it dirty.
func (m *Memory) WriteAt(p []byte, gpa uint64) error {
	b, err := m.Slice(gpa, uint64(len(p)))
	if err != nil {
		return err
	}
	copy(b, p)
	m.MarkDirty(gpa, uint64(len(p)))
	return nil
}

// TrackDirty makes every later write by the VMM set its pages in b, which
// must cover the whole memory; nil ends the tracking.
func (m *Memory) TrackDirty(b *Bitmap) { m.dirty.Store(b) }

// MarkDirty records that the VMM wrote n bytes at gpa through a Slice. KVM's
// own dirty log sees only what the vCPUs write. A range outside of RAM, which
// Slice would have refused, is ignored.
func (m *Memory) MarkDirty(gpa, n uint64) {
	b := m.dirty.Load()
	if b == nil || n == 0 {
		return
	}
	if off, err := m.offset(gpa, n); err == nil {
		b.SetRange(off, n)
	}
}

// Offset returns where in the backing file the n bytes at guest physical address
// gpa are. A range that is not wholly inside one region gives an error that wraps
// ErrOutOfRange.
func (m *Memory) Offset(gpa, n uint64) (uint64, error) { return m.offset(gpa, n) }

// Address returns the guest physical address of the byte at offset in the backing
// file, or an error that wraps ErrOutOfRange.
func (m *Memory) Address(offset uint64) (uint64, error) {
	for _, r := range m.regions {
		if offset >= r.Offset && offset-r.Offset < r.Size {
			return r.Base + offset - r.Offset, nil
		}
	}
	return 0, fmt.Errorf("guestmem: offset %#x: %w", offset, ErrOutOfRange)
}

// offset translates a checked guest range to an offset into the mapping.
func (m *Memory) offset(gpa, n uint64) (uint64, error) {
	for _, r := range m.regions {
		if gpa >= r.Base && gpa-r.Base < r.Size {
			if n > r.Size-(gpa-r.Base) {
				break
			}
			return r.Offset + (gpa - r.Base), nil
		}
	}
	return 0, fmt.Errorf("guestmem: access %d bytes at %#x: %w", n, gpa, ErrOutOfRange)
}
