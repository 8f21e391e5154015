package queue

import (
	"encoding/binary"
	"fmt"
	"io"
	"iter"
	"math"
)

// segment is one buffer of a chain: the guest's own memory.
type segment struct {
	gpa   uint64
	bytes []byte
}

// Chain is one request of the driver: buffers that the device reads, followed
// by buffers that it writes (virtio 1.3 §2.7.4.2). A Chain can be used again
// for the next Pop, which overwrites it.
type Chain struct {
	head     uint16
	readable []segment
	writable []segment
	readLen  uint32
	writeLen uint32
}

// ReadLen is the number of bytes that the device may read.
func (c *Chain) ReadLen() uint32 { return c.readLen }

// WriteLen is the number of bytes that the device may write.
func (c *Chain) WriteLen() uint32 { return c.writeLen }

// walk follows the chain that starts at head. Limits: as many descriptors as
// the queue has entries (virtio 1.3 §2.7.5.3.1 says the same of indirect
// tables), 4 GiB in all, readable before writable, one level of indirection.
func (q *Queue) walk(c *Chain, head uint16) error {
	c.head = head
	c.readable, c.writable = c.readable[:0], c.writable[:0]
	c.readLen, c.writeLen = 0, 0

	table, entries := q.desc, q.cfg.Size
	indirect := false
	next := head
	for steps := uint16(0); ; steps++ {
		if steps == q.cfg.Size {
			return fmt.Errorf("queue: chain at %d is longer than the queue, or a loop: %w", head, ErrGuest)
		}
		if next >= entries {
			return fmt.Errorf("queue: descriptor %d of %d: %w", next, entries, ErrGuest)
		}
		// Copied once; the guest may change the table while we look.
		var raw [descSize]byte
		copy(raw[:], table[int(next)*descSize:])
		addr := binary.LittleEndian.Uint64(raw[0:])
		length := binary.LittleEndian.Uint32(raw[8:])
		flags := binary.LittleEndian.Uint16(raw[12:])
		next = binary.LittleEndian.Uint16(raw[14:])

		if flags&flagIndirect != 0 {
			if indirect || !q.cfg.Indirect || flags&flagNext != 0 || steps != 0 {
				return fmt.Errorf("queue: indirect descriptor where none is allowed: %w", ErrGuest)
			}
			n := length / descSize
			if length%descSize != 0 || n == 0 || n > uint32(q.cfg.Size) {
				return fmt.Errorf("queue: indirect table of %d bytes in a queue of %d: %w", length, q.cfg.Size, ErrGuest)
			}
			b, err := q.mem.Slice(addr, uint64(length))
			if err != nil {
				return fmt.Errorf("queue: place indirect table: %w: %w", err, ErrGuest)
			}
			table, entries, indirect, next = b, uint16(n), true, 0
			steps = math.MaxUint16 // the table's own entries are counted from zero
			continue
		}
		if err := c.add(q, addr, length, flags&flagWrite != 0); err != nil {
			return err
		}
		if flags&flagNext == 0 {
			return nil
		}
	}
}

func (c *Chain) add(q *Queue, addr uint64, length uint32, write bool) error {
	if !write && len(c.writable) > 0 {
		return fmt.Errorf("queue: readable buffer behind a writable one: %w", ErrGuest)
	}
	b, err := q.mem.Slice(addr, uint64(length))
	if err != nil {
		return fmt.Errorf("queue: place buffer: %w: %w", err, ErrGuest)
	}
	total, list := &c.readLen, &c.readable
	if write {
		total, list = &c.writeLen, &c.writable
	}
	if length > math.MaxUint32-*total {
		return fmt.Errorf("queue: chain of more than 4 GiB: %w", ErrGuest)
	}
	*total += length
	*list = append(*list, segment{addr, b})
	return nil
}

// WritableRanges yields guest physical address and length in bytes of each
// writable buffer: for a device that is told of memory rather than given some
// to fill.
func (c *Chain) WritableRanges() iter.Seq2[uint64, uint32] {
	return func(yield func(uint64, uint32) bool) {
		for _, s := range c.writable {
			if !yield(s.gpa, uint32(len(s.bytes))) {
				return
			}
		}
	}
}

// MarkWritten marks the first n writable bytes dirty. Push does it; a device
// that wrote into a chain and then gives it back with Unpop calls it itself.
func (q *Queue) MarkWritten(c *Chain, n uint32) {
	left := uint64(n)
	for _, s := range c.writable {
		if left == 0 {
			return
		}
		k := min(left, uint64(len(s.bytes)))
		q.mem.MarkDirty(s.gpa, k)
		left -= k
	}
}

// Cursor walks over one side of a chain. It is a value: a copy keeps its own
// place. It holds as long as the chain is not popped anew.
type Cursor struct {
	segs []segment
	off  int
	left uint32
}

// Reader returns a cursor at the start of what the device may read. The guest
// may change these bytes at any time: copy headers out before looking at them.
func (c *Chain) Reader() Cursor { return Cursor{segs: c.readable, left: c.readLen} }

// Writer returns a cursor at the start of what the device may write.
func (c *Chain) Writer() Cursor { return Cursor{segs: c.writable, left: c.writeLen} }

// Len is the number of bytes from the cursor to the end.
func (c *Cursor) Len() uint32 { return c.left }

// Read copies from the chain, as io.Reader.
func (c *Cursor) Read(p []byte) (int, error) {
	if len(p) > 0 && c.left == 0 {
		return 0, io.EOF
	}
	return c.transfer(len(p), func(b []byte, done int) { copy(p[done:], b) }), nil
}

// Write copies into the chain, as io.Writer: io.ErrShortWrite when it is full.
func (c *Cursor) Write(p []byte) (int, error) {
	n := c.transfer(len(p), func(b []byte, done int) { copy(b, p[done:]) })
	if n < len(p) {
		return n, io.ErrShortWrite
	}
	return n, nil
}

// Skip moves the cursor by n bytes, or to the end.
func (c *Cursor) Skip(n uint32) { c.transfer(int(n), func([]byte, int) {}) }

// Slices appends the guest's own memory for the next n bytes, or up to the
// end, to dst and moves the cursor: for vectored I/O.
func (c *Cursor) Slices(dst [][]byte, n uint32) [][]byte {
	c.transfer(int(n), func(b []byte, _ int) { dst = append(dst, b) })
	return dst
}

// Split returns a cursor over the next n bytes, or up to the end, and moves
// this one behind them.
func (c *Cursor) Split(n uint32) Cursor {
	head := *c
	head.left = min(n, c.left)
	c.Skip(n)
	return head
}

// transfer calls f with each run of the next n bytes and moves the cursor.
func (c *Cursor) transfer(n int, f func(b []byte, done int)) int {
	n = min(n, int(c.left))
	done := 0
	for done < n {
		b := c.segs[0].bytes[c.off:]
		if len(b) > n-done {
			b = b[:n-done]
			c.off += len(b)
		} else {
			c.segs, c.off = c.segs[1:], 0
		}
		if len(b) == 0 {
			continue // an empty buffer is allowed
		}
		f(b, done)
		done += len(b)
	}
	c.left -= uint32(done)
	return done
}
