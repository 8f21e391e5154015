package dirty

import (
	"fmt"
	"math/bits"
	"sync"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/internal/pagemap"
)

// RingBytes is the size of a processor's dirty ring: 65 536 pages, the most that KVM
// offers. One that is full stops its processor until it has been read.
const RingBytes = 1 << 20

// kvmLog is what KVM tells of the processors' writes, by its log or by rings, with a
// bitmap of what devices write.
type kvmLog struct {
	t  *Tracking
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

// start begins with an empty log.
func (l *kvmLog) start() error {
	l.stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.overflow {
		return errOverflow
	}
	l.written = guestmem.NewBitmap(l.t.cfg.Memory.Size())
	l.t.cfg.Memory.TrackDirty(l.written)
	l.on = true
	for slot := range l.t.cfg.Memory.Regions() {
		if err := l.t.cfg.VM.SetDirtyLog(uint32(slot), true); err != nil {
			l.off()
			return err
		}
	}
	return nil
}

// stop ends the log. A slot that cannot be set back only goes on logging.
func (l *kvmLog) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.on {
		l.off()
	}
}

// off is stop. Preconditions: mu is held, on.
func (l *kvmLog) off() {
	l.on = false
	l.written = nil
	l.t.cfg.Memory.TrackDirty(nil)
	for slot := range l.t.cfg.Memory.Regions() {
		if err := l.t.cfg.VM.SetDirtyLog(uint32(slot), false); err != nil {
			l.t.cfg.Log(err)
		}
	}
	if l.t.cfg.Rings != nil {
		// What is left in the rings would be told of after the next start.
		if err := l.readRings(l.t.cfg.Rings...); err != nil {
			l.t.cfg.Log(err)
		}
	}
}

// drain returns what was written since start or the last drain, and clears it.
func (l *kvmLog) drain() ([]pagemap.Range, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.t.cfg.Rings != nil {
		err = l.readRings(l.t.cfg.Rings...)
	} else {
		err = l.readLog(false)
	}
	if err != nil {
		return nil, err
	}
	return drainBitmap(l.written), nil
}

// keptLog is KVM's log as a finder that forgets nothing until it is stopped: what it
// finds was written since its start.
type keptLog struct{ *kvmLog }

func (l keptLog) drain() ([]pagemap.Range, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.readLog(true); err != nil {
		return nil, err
	}
	list := drainBitmap(l.written)
	for _, r := range list {
		l.written.SetRange(uint64(r.First)*guestmem.PageSize, uint64(r.Count)*guestmem.PageSize)
	}
	return list, nil
}

// drainBitmap returns the marked pages, and clears their marks.
func drainBitmap(b *guestmem.Bitmap) (list []pagemap.Range) {
	b.Drain(func(page uint64) { list = pagemap.Append(list, pagemap.Range{First: uint32(page), Count: 1}) })
	return list
}

// readLog adds the log to the bitmap and, unless it is to be kept, clears it.
func (l *kvmLog) readLog(keep bool) error {
	for slot, r := range l.t.cfg.Memory.Regions() {
		words := int((r.Size/guestmem.PageSize + 63) / 64)
		if len(l.words) < words {
			l.words = make([]uint64, words)
		}
		clear(l.words[:words])
		if err := l.t.cfg.VM.DirtyLog(uint32(slot), l.words[:words]); err != nil {
			return err
		}
		if l.t.cfg.KeepsLog && !keep {
			if err := l.t.cfg.VM.ClearDirtyLog(uint32(slot), l.words[:words]); err != nil {
				return err
			}
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
func (l *kvmLog) readRings(rings ...*kvm.DirtyRing) error {
	regions, left := l.t.cfg.Memory.Regions(), 0
	for _, ring := range rings {
		n := ring.Harvest(func(slot uint32, page uint64) {
			if l.written != nil && int(slot) < len(regions) {
				l.written.SetRange(regions[slot].Offset+page*guestmem.PageSize, 1)
			}
		})
		l.overflow = l.overflow || n == ring.Entries()
		left += n
	}
	for none := 0; left > 0 && !l.overflow; {
		n, err := l.t.cfg.VM.ResetDirtyRings()
		if err != nil {
			return err
		}
		left -= n
		// None: there was a signal or, if that is all we hear, KVM has written over an
		// entry that it was to take back.
		if none++; n > 0 {
			none = 0
		}
		l.overflow = none == resetTries
	}
	if l.overflow {
		return errOverflow
	}
	return nil
}

// resetTries is how often KVM may take back nothing: it stops at each signal, and Go
// sends itself some.
const resetTries = 100

// errOverflow can be of the host's making: where KVM emulates a processor, as on pvm
// hosts before the guest's kernel runs natively, it does not always stop in time.
var errOverflow = fmt.Errorf("dirty: tracker %s: a processor has written more pages than its ring holds: %w", Ring, ErrTracker)

// RingFull makes room in the ring of a processor that stands still for it. It is
// called on the processor's thread.
func (t *Tracking) RingFull(processor int) error {
	t.log.mu.Lock()
	defer t.log.mu.Unlock()
	return t.log.readRings(t.cfg.Rings[processor])
}
