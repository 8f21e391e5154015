package vmm

import (
	"errors"
	"fmt"
	"math/bits"
	"os"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/snapshot/memimage"
)

// Tracker is a way to find the pages that a machine has written, by name. Each
// returns candidates: pages among which all that differ from the image are.
type Tracker string

// Trackers.
const (
	// TrackPagemap takes the pages that are private to the process. It costs
	// the guest nothing; the search costs what the guest has written since it
	// was restored, not since the last checkpoint.
	TrackPagemap Tracker = "pagemap"
	// TrackDirtyLog takes KVM's dirty log and what the devices wrote. Each page
	// that the guest writes for the first time after a checkpoint costs it a
	// fault; the search costs what was written since the last checkpoint.
	TrackDirtyLog Tracker = "dirty-log"
	// TrackFull takes every page: what the others are tested against.
	TrackFull Tracker = "full"
)

// ErrTracker is wrapped when a tracker is not known or cannot be used here.
var ErrTracker = errors.New("dirty tracker cannot be used")

// track is what a machine has for the trackers.
type track struct {
	name    Tracker // that was started last
	scanner *pagemap.Scanner
	file    *os.File // of the scanner
	log     dirtyLog
}

// setPagemap takes over the process's page map, which only the daemon can open.
func (t *track) setPagemap(file *os.File) {
	if t.file != nil {
		t.file.Close()
	}
	t.file, t.scanner = file, pagemap.New(file)
}

func (t *track) close() {
	if t.file != nil {
		t.file.Close()
		t.file, t.scanner = nil, nil
	}
}

// startTracker begins to track against the image that the memory has now.
// Preconditions: paused.
func (m *Machine) startTracker(name Tracker) error {
	m.track.log.stop(m)
	m.track.name = name
	switch name {
	case TrackPagemap, TrackFull:
		return nil
	case TrackDirtyLog:
		return m.track.log.start(m)
	}
	return fmt.Errorf("vmm: tracker %.40q is not known: %w", name, ErrTracker)
}

// candidates returns the pages that may differ from the machine's image.
func (m *Machine) candidates(image *memimage.Image, name Tracker) ([]pagemap.Range, error) {
	switch name {
	case TrackFull:
		return []pagemap.Range{{First: 0, Count: uint32(m.mem.Size() / guestmem.PageSize)}}, nil
	case TrackPagemap:
		private, err := m.private()
		if err != nil {
			return nil, err
		}
		return image.Candidates(private), nil
	case TrackDirtyLog:
		if m.track.name != TrackDirtyLog {
			return nil, fmt.Errorf("vmm: dirty log was not started: %w", ErrTracker)
		}
		return m.track.log.drain(m)
	}
	return nil, fmt.Errorf("vmm: tracker %.40q is not known: %w", name, ErrTracker)
}

// private returns the pages that are this process's own.
func (m *Machine) private() ([]pagemap.Range, error) {
	if m.track.scanner == nil {
		return nil, fmt.Errorf("vmm: no page map was passed: %w", ErrTracker)
	}
	return m.track.scanner.Private(m.mem.Host(), nil)
}

// dirtyLog is KVM's log of what the processors write, with a bitmap of what
// devices write.
type dirtyLog struct {
	on      bool
	devices *guestmem.Bitmap
	words   []uint64 // of one slot
}

// start begins with an empty log.
func (l *dirtyLog) start(m *Machine) error {
	l.devices = guestmem.NewBitmap(m.mem.Size())
	m.mem.TrackDirty(l.devices)
	l.on = true
	for slot := range m.mem.Regions() {
		if err := m.vm.SetDirtyLog(uint32(slot), true); err != nil {
			l.stop(m)
			return err
		}
	}
	return nil
}

// stop ends the log. A slot that cannot be set back only goes on logging.
func (l *dirtyLog) stop(m *Machine) {
	if !l.on {
		return
	}
	l.on = false
	m.mem.TrackDirty(nil)
	for slot := range m.mem.Regions() {
		if err := m.vm.SetDirtyLog(uint32(slot), false); err != nil {
			m.cfg.Log(err)
		}
	}
}

// drain returns what was written since start or the last drain, and clears it.
func (l *dirtyLog) drain(m *Machine) ([]pagemap.Range, error) {
	for slot, r := range m.mem.Regions() {
		words := int((r.Size/guestmem.PageSize + 63) / 64)
		if len(l.words) < words {
			l.words = make([]uint64, words)
		}
		clear(l.words[:words])
		if err := m.vm.DirtyLog(uint32(slot), l.words[:words]); err != nil {
			return nil, err
		}
		for i, word := range l.words[:words] {
			for ; word != 0; word &= word - 1 {
				page := uint64(i*64 + bits.TrailingZeros64(word))
				l.devices.SetRange(r.Offset+page*guestmem.PageSize, 1)
			}
		}
	}
	var list []pagemap.Range
	l.devices.Drain(func(page uint64) { list = pagemap.Append(list, pagemap.Range{First: uint32(page), Count: 1}) })
	return list, nil
}
