package vmm

import (
	"fmt"
	"math/bits"
	"sync"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
)

// ringBytes is the size of a processor's dirty ring: 65 536 pages, the most that KVM
// offers. One that is full stops its processor until it has been read.
const ringBytes = 1 << 20

// kvmLog is what KVM tells of the processors' writes, by its log or by rings, with a
// bitmap of what devices write.
type kvmLog struct {
	on bool
	// mu makes reading rings and giving back what was read one step; a
	// processor whose ring is full does it too.
	mu      sync.Mutex
	written *guestmem.Bitmap // by devices, and what was read of the rings; protected by mu
	words   []uint64         // of one slot
	// overflow: a ring was too small. KVM and we do not agree any more where in it
	// the next page is.
	overflow bool
}

// enableRings gives the processors rings. Preconditions: none has been made yet.
func (m *Machine) enableRings() error {
	if limit := m.system.DirtyRingLimit(); limit < ringBytes {
		return fmt.Errorf("vmm: tracker %s: kvm offers rings of %d bytes: %w", TrackDirtyRing, limit, ErrTracker)
	}
	return m.vm.EnableDirtyRing(ringBytes)
}

// start begins with an empty log.
func (l *kvmLog) start(m *Machine) error {
	l.stop(m)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overflow {
		return errOverflow
	}
	l.written = guestmem.NewBitmap(m.mem.Size())
	m.mem.TrackDirty(l.written)
	l.on = true
	for slot := range m.mem.Regions() {
		if err := m.vm.SetDirtyLog(uint32(slot), true); err != nil {
			l.off(m)
			return err
		}
	}
	return nil
}

// stop ends the log. A slot that cannot be set back only goes on logging.
func (l *kvmLog) stop(m *Machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on {
		l.off(m)
	}
}

// off is stop. Preconditions: mu is held, on.
func (l *kvmLog) off(m *Machine) {
	l.on = false
	l.written = nil
	m.mem.TrackDirty(nil)
	for slot := range m.mem.Regions() {
		if err := m.vm.SetDirtyLog(uint32(slot), false); err != nil {
			m.cfg.Log(err)
		}
	}
	if m.cfg.DirtyRing {
		// What is left in the rings would be told of after the next start.
		if err := l.readRings(m, m.vcpus...); err != nil {
			m.cfg.Log(err)
		}
	}
}

// drain returns what was written since start or the last drain, and clears it.
func (l *kvmLog) drain(m *Machine) ([]pagemap.Range, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	read := l.readLog
	if m.cfg.DirtyRing {
		read = func(m *Machine) error { return l.readRings(m, m.vcpus...) }
	}
	if err := read(m); err != nil {
		return nil, err
	}
	return drainBitmap(l.written), nil
}

// drainBitmap returns the marked pages, and clears their marks.
func drainBitmap(b *guestmem.Bitmap) (list []pagemap.Range) {
	b.Drain(func(page uint64) { list = pagemap.Append(list, pagemap.Range{First: uint32(page), Count: 1}) })
	return list
}

func (l *kvmLog) readLog(m *Machine) error {
	for slot, r := range m.mem.Regions() {
		words := int((r.Size/guestmem.PageSize + 63) / 64)
		if len(l.words) < words {
			l.words = make([]uint64, words)
		}
		clear(l.words[:words])
		if err := m.vm.DirtyLog(uint32(slot), l.words[:words]); err != nil {
			return err
		}
		for i, word := range l.words[:words] {
			for ; word != 0; word &= word - 1 {
				page := uint64(i*64 + bits.TrailingZeros64(word))
				l.written.SetRange(r.Offset+page*guestmem.PageSize, 1)
			}
		}
	}
	return nil
}

// readRings moves what is in the processors' rings to the bitmap. Preconditions: mu is
// held. Processors may run: KVM notices writes again from here on.
func (l *kvmLog) readRings(m *Machine, vcpus ...*vcpu) error {
	regions, left := m.mem.Regions(), 0
	for _, c := range vcpus {
		ring := c.kvm.DirtyRing()
		n := ring.Harvest(func(slot uint32, page uint64) {
			if l.written != nil && int(slot) < len(regions) {
				l.written.SetRange(regions[slot].Offset+page*guestmem.PageSize, 1)
			}
		})
		l.overflow = l.overflow || n == ring.Entries()
		left += n
	}
	for left > 0 && !l.overflow {
		n, err := m.vm.ResetDirtyRings()
		if err != nil {
			return err
		}
		// None: KVM has written over an entry that it was to take back.
		l.overflow = n == 0
		left -= n
	}
	if l.overflow {
		return errOverflow
	}
	return nil
}

// errOverflow can be of the host's making: where KVM emulates a processor, as on pvm
// hosts before the guest's kernel runs natively, it does not always stop in time.
var errOverflow = fmt.Errorf("vmm: tracker %s: a processor has written more pages than its ring holds: %w", TrackDirtyRing, ErrTracker)

// ringFull makes room in the ring of a processor that stands still for it. It is
// called on the processor's thread.
func (l *kvmLog) ringFull(c *vcpu) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.readRings(c.m, c)
}
