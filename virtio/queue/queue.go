// Package queue is the device's side of a split virtqueue (virtio 1.3 §2.7),
// with indirect descriptors and event index.
//
// The driver is hostile. Ring addresses are checked once, when the queue is
// made; every index, length and address that is read from the rings later is
// copied once and the copy is checked. What breaks the rules gives an error
// that wraps ErrGuest; the queue must then not be used further, and its
// device asks for a reset.
//
//	driver                              device (this package)
//	adds to avail ring, avail.idx++  →  Pop   nextAvail++
//	                                    Push  used ring entry
//	takes from used ring             ←  Publish  used.idx
//
// A queue belongs to one goroutine, with one exception: Push and Publish touch
// nothing that the other methods do, Owes aside, so a device may answer from
// other goroutines, which then take turns.
package queue

import (
	"encoding/binary"
	"errors"
	"fmt"

	"thaw/internal/guestmem"
)

// MaxSize is the largest queue that is accepted; the standard allows 32768
// (virtio 1.3 §2.7), no device here offers more than 1024.
const MaxSize = 1024

// ErrGuest is wrapped by every error that a guest's driver caused.
var ErrGuest = errors.New("driver broke the virtqueue rules")

// Layout of the rings, virtio 1.3 §2.7.5, §2.7.6, §2.7.8.
const (
	descSize      = 16
	ringIdx       = 2 // offset of idx in the avail and used ring
	ringHeader    = 4 // flags and idx
	availElemSize = 2
	usedElemSize  = 8

	flagNext     = 1 // VIRTQ_DESC_F_NEXT
	flagWrite    = 2 // VIRTQ_DESC_F_WRITE
	flagIndirect = 4 // VIRTQ_DESC_F_INDIRECT

	availNoInterrupt = 1 // VIRTQ_AVAIL_F_NO_INTERRUPT
	usedNoNotify     = 1 // VIRTQ_USED_F_NO_NOTIFY
)

// Config is what the driver chose for a queue: untrusted.
type Config struct {
	Size  uint16 // entries, a power of two
	Desc  uint64 // guest physical addresses
	Avail uint64
	Used  uint64
	// EventIndex and Indirect say which ring features were negotiated.
	EventIndex bool
	Indirect   bool
}

// Queue is a virtqueue that the driver has set up and enabled.
type Queue struct {
	mem    *guestmem.Memory
	cfg    Config
	mask   uint16
	desc   []byte
	avail  []byte
	used   []byte
	next   uint16 // next entry of the avail ring to look at
	pushed uint16 // entries written to the used ring, published or not
	// signalled is the used index up to which the driver has been told;
	// with event index an interrupt is due when used_event lies in between.
	signalled uint16
}

// New checks the driver's configuration and returns the queue. An error wraps
// ErrGuest.
func New(mem *guestmem.Memory, cfg Config) (*Queue, error) {
	if cfg.Size == 0 || cfg.Size&(cfg.Size-1) != 0 || cfg.Size > MaxSize {
		return nil, fmt.Errorf("queue: size %d is not a power of two up to %d: %w", cfg.Size, MaxSize, ErrGuest)
	}
	n := uint64(cfg.Size)
	q := &Queue{mem: mem, cfg: cfg, mask: cfg.Size - 1}
	// The event fields at the end of both rings exist in every layout.
	parts := [...]struct {
		name             string
		dst              *[]byte
		addr, len, align uint64
	}{
		{"descriptor table", &q.desc, cfg.Desc, n * descSize, 16},
		{"available ring", &q.avail, cfg.Avail, ringHeader + n*availElemSize + 2, 2},
		{"used ring", &q.used, cfg.Used, ringHeader + n*usedElemSize + 2, 4},
	}
	for i, p := range parts {
		if p.addr%p.align != 0 {
			return nil, fmt.Errorf("queue: %s at %#x is not aligned to %d: %w", p.name, p.addr, p.align, ErrGuest)
		}
		b, err := mem.Slice(p.addr, p.len)
		if err != nil {
			return nil, fmt.Errorf("queue: place %s: %w: %w", p.name, err, ErrGuest)
		}
		*p.dst = b
		for _, o := range parts[:i] {
			if p.addr < o.addr+o.len && o.addr < p.addr+p.len {
				return nil, fmt.Errorf("queue: %s overlaps the %s: %w", p.name, o.name, ErrGuest)
			}
		}
	}
	return q, nil
}

// Size is the number of entries.
func (q *Queue) Size() uint16 { return q.cfg.Size }

// Available says whether the driver has made chains available that Pop has
// not returned yet.
func (q *Queue) Available() bool {
	return q.Offered() != q.next
}

// Pop fills c with the next available chain and returns true, or returns
// false when there is none. The chain must be given back with Push.
func (q *Queue) Pop(c *Chain) (bool, error) {
	// Acquire: the ring entry and the descriptors were written before idx.
	idx := q.Offered()
	if idx == q.next {
		return false, nil
	}
	if idx-q.next > q.cfg.Size {
		return false, fmt.Errorf("queue: available index jumps from %d to %d in a ring of %d: %w", q.next, idx, q.cfg.Size, ErrGuest)
	}
	head := guestmem.LoadAcquire16(q.avail, ringHeader+int(q.next&q.mask)*availElemSize)
	if err := q.walk(c, head); err != nil {
		return false, err
	}
	q.next++
	return true, nil
}

// Unpop gives the last n popped chains back: the next Pop returns them again.
// Preconditions: none of them was pushed, and nothing was pushed out of their
// order.
func (q *Queue) Unpop(n int) { q.next -= uint16(n) }

// Push puts a chain that Pop returned into the used ring; written is how many
// bytes of its writable part the device filled. The driver sees it only after
// Publish.
func (q *Queue) Push(c *Chain, written uint32) {
	q.MarkWritten(c, written)
	off := ringHeader + int(q.pushed&q.mask)*usedElemSize
	binary.LittleEndian.PutUint32(q.used[off:], uint32(c.head))
	binary.LittleEndian.PutUint32(q.used[off+4:], written)
	q.mem.MarkDirty(q.cfg.Used+uint64(off), usedElemSize)
	q.pushed++
}

// Publish makes all pushed chains visible to the driver and says whether it
// wants an interrupt for them.
func (q *Queue) Publish() (interrupt bool) {
	if q.pushed == q.signalled {
		return false
	}
	// Release: the entries are complete before idx says so.
	guestmem.StoreRelease16(q.used, ringIdx, q.pushed)
	q.mem.MarkDirty(q.cfg.Used, ringHeader)
	// The driver writes used_event, or the flag, and then looks at idx; we
	// wrote idx and now look at used_event. Without a full fence both could
	// miss each other (virtio 1.3 §2.7.10).
	guestmem.Fence()
	old := q.signalled
	q.signalled = q.pushed
	if !q.cfg.EventIndex {
		return guestmem.LoadAcquire16(q.avail, 0)&availNoInterrupt == 0
	}
	return q.pushed-q.usedEvent()-1 < q.pushed-old
}

// Owes says whether the driver may be waiting for an interrupt about what was
// published already: one that was raised just before the queue was saved can
// have missed the saved interrupt controller.
//
// With event index the driver names the used index after which it wants to be
// woken, used_event. It waits only when it has taken everything up to there and
// nothing beyond, so at most a ring of entries can lie between used_event and
// the used index; a used_event further back is of a driver that has gone on
// without one, as a polling one does. Without event index nothing tells how far
// the driver has come: it is owed an interrupt unless it wants none.
// An interrupt too many finds empty rings, which a driver must bear (§2.3).
func (q *Queue) Owes() bool {
	if !q.cfg.EventIndex {
		return guestmem.LoadAcquire16(q.avail, 0)&availNoInterrupt == 0
	}
	return q.signalled-q.usedEvent()-1 < q.cfg.Size
}

// usedEvent is the used index after which the driver wants an interrupt.
func (q *Queue) usedEvent() uint16 {
	return guestmem.LoadAcquire16(q.avail, ringHeader+int(q.cfg.Size)*availElemSize)
}

// Offered is the driver's available index: how many chains it has ever made
// available, modulo 2¹⁶.
func (q *Queue) Offered() uint16 { return guestmem.LoadAcquire16(q.avail, ringIdx) }

// DisableNotify tells the driver that no kick is needed. It is a hint.
func (q *Queue) DisableNotify() {
	if q.cfg.EventIndex {
		// An avail_event that was passed already: no kick until the index
		// has gone round, and EnableNotify sets it anew before we sleep.
		return
	}
	guestmem.StoreRelease16(q.used, 0, usedNoNotify)
	q.mem.MarkDirty(q.cfg.Used, 2)
}

// EnableNotify asks the driver to kick for the next chain. It returns true
// when chains were made available meanwhile: the caller must then go on and
// not sleep.
func (q *Queue) EnableNotify() (available bool) { return q.EnableNotifyAt(q.next) }

// EnableNotifyAt asks the driver to kick when its available index leaves at, and
// returns true when it has already: for a device that has chains at hand and
// waits for more.
func (q *Queue) EnableNotifyAt(at uint16) (more bool) {
	if q.cfg.EventIndex {
		off := ringHeader + int(q.cfg.Size)*usedElemSize
		guestmem.StoreRelease16(q.used, off, at)
		q.mem.MarkDirty(q.cfg.Used+uint64(off), 2)
	} else {
		guestmem.StoreRelease16(q.used, 0, 0)
		q.mem.MarkDirty(q.cfg.Used, 2)
	}
	// Pairs with the driver's fence between avail.idx and avail_event.
	guestmem.Fence()
	return q.Offered() != at
}
