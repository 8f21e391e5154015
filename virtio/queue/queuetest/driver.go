// Package queuetest is a driver for split virtqueues: it builds real rings in
// real guest memory. Unit tests, benchmarks and fuzz tests of every device
// share it.
package queuetest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"thaw/internal/guestmem"
	"thaw/virtio/queue"
)

// Buffer is one buffer of a chain, with the guest physical address of its
// bytes.
type Buffer struct {
	GPA   uint64
	Len   uint32
	Write bool // the device may write it
}

// Descriptor flags, for tests that build broken chains by hand.
const (
	Next     = 1
	Write    = 2
	Indirect = 4
)

// Driver owns one queue and a piece of guest memory to put buffers in.
type Driver struct {
	Mem  *guestmem.Memory
	Cfg  queue.Config
	t    testing.TB
	free uint64 // next free address for buffers
	end  uint64
	desc uint16 // next descriptor, wrapping: tests keep few in flight
	seen uint16 // used entries taken
}

// New lays out a queue of the given size at base and takes the memory from
// there to base+span for its buffers.
func New(t testing.TB, mem *guestmem.Memory, base, span uint64, size uint16) *Driver {
	t.Helper()
	n := uint64(size)
	avail := base + n*16
	used := (avail + 4 + n*2 + 2 + 3) &^ 3
	d := &Driver{
		Mem: mem, t: t,
		Cfg:  queue.Config{Size: size, Desc: base, Avail: avail, Used: used, EventIndex: true, Indirect: true},
		free: (used + 4 + n*8 + 2 + 4095) &^ 4095, end: base + span,
	}
	if d.free > d.end {
		t.Fatalf("queuetest: a queue of %d does not fit in %d bytes", size, span)
	}
	return d
}

// Memory returns a guest memory of size bytes that is unmapped when the test
// ends.
func Memory(t testing.TB, size uint64) *guestmem.Memory {
	t.Helper()
	mem, err := guestmem.New(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Unmap() })
	return mem
}

// Alloc takes n bytes of guest memory for a buffer.
func (d *Driver) Alloc(n uint32) uint64 {
	d.t.Helper()
	gpa := d.free
	d.free += (uint64(n) + 15) &^ 15
	if d.free > d.end {
		d.t.Fatal("queuetest: out of buffer memory")
	}
	return gpa
}

// Readable returns a buffer with the given content, for the device to read.
func (d *Driver) Readable(p []byte) Buffer {
	gpa := d.Alloc(uint32(len(p)))
	d.put(gpa, p)
	return Buffer{GPA: gpa, Len: uint32(len(p))}
}

// Writable returns a buffer of n bytes, for the device to write.
func (d *Driver) Writable(n uint32) Buffer {
	return Buffer{GPA: d.Alloc(n), Len: n, Write: true}
}

// Bytes returns a copy of a buffer's content.
func (d *Driver) Bytes(b Buffer) []byte {
	p := make([]byte, b.Len)
	if err := d.Mem.ReadAt(p, b.GPA); err != nil {
		d.t.Fatal(err)
	}
	return p
}

// SetDescriptor writes entry i of the table, whatever it is.
func (d *Driver) SetDescriptor(i uint16, addr uint64, length uint32, flags, next uint16) {
	d.put(d.Cfg.Desc+uint64(i)*16, Descriptor(addr, length, flags, next))
}

// Descriptor encodes one descriptor.
func Descriptor(addr uint64, length uint32, flags, next uint16) []byte {
	p := make([]byte, 16)
	binary.LittleEndian.PutUint64(p, addr)
	binary.LittleEndian.PutUint32(p[8:], length)
	binary.LittleEndian.PutUint16(p[12:], flags)
	binary.LittleEndian.PutUint16(p[14:], next)
	return p
}

// Add makes a chain of buffers available and returns its head.
func (d *Driver) Add(buffers ...Buffer) uint16 {
	d.t.Helper()
	head := d.desc % d.Cfg.Size
	for i, b := range buffers {
		at := d.desc % d.Cfg.Size
		d.desc++
		var flags uint16
		if i < len(buffers)-1 {
			flags |= Next
		}
		if b.Write {
			flags |= Write
		}
		d.SetDescriptor(at, b.GPA, b.Len, flags, d.desc%d.Cfg.Size)
	}
	d.Offer(head)
	return head
}

// AddIndirect makes a chain available by way of an indirect table.
func (d *Driver) AddIndirect(buffers ...Buffer) uint16 {
	d.t.Helper()
	table := d.Alloc(uint32(len(buffers)) * 16)
	for i, b := range buffers {
		var flags uint16
		if i < len(buffers)-1 {
			flags |= Next
		}
		if b.Write {
			flags |= Write
		}
		d.put(table+uint64(i)*16, Descriptor(b.GPA, b.Len, flags, uint16(i+1)))
	}
	head := d.desc % d.Cfg.Size
	d.desc++
	d.SetDescriptor(head, table, uint32(len(buffers))*16, Indirect, 0)
	d.Offer(head)
	return head
}

// Offer puts head into the available ring and raises its index.
func (d *Driver) Offer(head uint16) {
	idx := d.AvailIndex()
	d.put16(d.Cfg.Avail+4+uint64(idx%d.Cfg.Size)*2, head)
	d.SetAvailIndex(idx + 1)
}

// AvailIndex reads the available index.
func (d *Driver) AvailIndex() uint16 { return d.get16(d.Cfg.Avail + 2) }

// SetAvailIndex writes the available index, whatever it is.
func (d *Driver) SetAvailIndex(v uint16) { d.put16(d.Cfg.Avail+2, v) }

// SetUsedEvent writes used_event: interrupt when the used index passes v.
func (d *Driver) SetUsedEvent(v uint16) { d.put16(d.Cfg.Avail+4+uint64(d.Cfg.Size)*2, v) }

// AvailEvent reads avail_event: the device wants a kick when the available
// index passes it.
func (d *Driver) AvailEvent() uint16 { return d.get16(d.Cfg.Used + 4 + uint64(d.Cfg.Size)*8) }

// UsedIndex reads the used index.
func (d *Driver) UsedIndex() uint16 { return d.get16(d.Cfg.Used + 2) }

// Used takes the next used entry; ok is false when there is none.
func (d *Driver) Used() (head uint16, written uint32, ok bool) {
	if d.UsedIndex() == d.seen {
		return 0, 0, false
	}
	p := make([]byte, 8)
	if err := d.Mem.ReadAt(p, d.Cfg.Used+4+uint64(d.seen%d.Cfg.Size)*8); err != nil {
		d.t.Fatal(err)
	}
	d.seen++
	return uint16(binary.LittleEndian.Uint32(p)), binary.LittleEndian.Uint32(p[4:]), true
}

// Queue returns the device's side.
func (d *Driver) Queue() *queue.Queue {
	d.t.Helper()
	q, err := queue.New(d.Mem, d.Cfg)
	if err != nil {
		d.t.Fatal(fmt.Errorf("queuetest: %w", err))
	}
	return q
}

func (d *Driver) put(gpa uint64, p []byte) {
	d.t.Helper()
	if err := d.Mem.WriteAt(p, gpa); err != nil {
		d.t.Fatal(err)
	}
}

func (d *Driver) put16(gpa uint64, v uint16) {
	b, err := d.Mem.Slice(gpa, 2)
	if err != nil {
		d.t.Fatal(err)
	}
	guestmem.StoreRelease16(b, 0, v)
}

func (d *Driver) get16(gpa uint64) uint16 {
	b, err := d.Mem.Slice(gpa, 2)
	if err != nil {
		d.t.Fatal(err)
	}
	return guestmem.LoadAcquire16(b, 0)
}
