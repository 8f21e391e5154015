package vmm

import (
	"errors"
	"fmt"
	"os"

	"thaw/internal/pagemap"
	"thaw/snapshot/memimage"
)

// Tracker is a way to find the pages that a machine has written, by name. Each
// returns candidates: pages among which all that differ from the image are.
// docs/adr/0011-dirty-trackers.md compares them.
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
	// TrackDirtyRing takes the rings in which KVM tells of each page that a
	// processor writes, and what the devices wrote. It is for machines that were
	// made with rings (Config.DirtyRing), which have no dirty log then.
	TrackDirtyRing Tracker = "dirty-ring"
	// TrackUffdAsync takes the private pages that were written since they were
	// write-protected, which the kernel notes in its page tables. It sees what
	// devices write like what the guest writes.
	TrackUffdAsync Tracker = "uffd-wp-async"
	// TrackFull takes every page: what the others are tested against.
	TrackFull Tracker = "full"
)

// ErrTracker is wrapped when a tracker is not known or cannot be used here.
var ErrTracker = errors.New("dirty tracker cannot be used")

// finder is a tracker that knows what was written since it was started or drained
// last.
//
//	off ──start──▶ on ──drain──▶ on, with nothing found yet
//	 ▲              │
//	 └─────stop─────┘
//
// start and drain may be called while the guest runs: a page is then found by the
// drain before or after, but one that is copied after a drain has all that the drain
// was told of.
type finder interface {
	start(m *Machine) error
	drain(m *Machine) ([]pagemap.Range, error)
	stop(m *Machine)
}

// track is what a machine has for the trackers.
type track struct {
	name    Tracker // that was started last; empty: none
	finder  finder  // of name; nil: it needs none
	log     kvmLog  // may be a finder, or stands in while pages are copied ahead
	async   asyncWP
	scanner *pagemap.Scanner
	file    *os.File // of the scanner
	device  *os.File // uffd.Device, or nil
}

// setPagemap takes over the process's page map, which only the daemon can open.
func (t *track) setPagemap(file *os.File) {
	if t.file != nil {
		t.file.Close()
	}
	t.file, t.scanner = file, pagemap.New(file)
}

// setUserfault takes over an open uffd.Device.
func (t *track) setUserfault(file *os.File) {
	if t.device != nil {
		t.device.Close()
	}
	t.device = file
}

func (t *track) close() {
	t.async.close()
	closeFiles([]*os.File{t.file, t.device})
	t.file, t.scanner, t.device = nil, nil, nil
}

// finderOf returns the finder of a tracker; nil for those that look at what there is
// now, and need no beginning.
func (m *Machine) finderOf(name Tracker) (finder, error) {
	switch name {
	case TrackPagemap, TrackFull:
		return nil, nil
	case TrackDirtyLog, TrackDirtyRing:
		if (name == TrackDirtyRing) != m.cfg.DirtyRing {
			return nil, fmt.Errorf("vmm: tracker %s: a machine has either dirty rings or a dirty log, from its start on: %w", name, ErrTracker)
		}
		return &m.track.log, nil
	case TrackUffdAsync:
		return &m.track.async, nil
	}
	return nil, fmt.Errorf("vmm: tracker %.40q is not known: %w", name, ErrTracker)
}

// startTracker begins to track against the image that the memory has now.
// Preconditions: paused.
func (m *Machine) startTracker(name Tracker) error {
	f, err := m.finderOf(name)
	if err != nil {
		return err
	}
	if f != m.track.finder {
		m.stopTracker()
	}
	m.track.log.stop(m) // it may have stood in
	if f != nil {
		if err := f.start(m); err != nil {
			return err
		}
	}
	m.track.name, m.track.finder = name, f
	return nil
}

// nextTracker has a tracker begin against what was saved just now, by another or by
// itself: then it was drained in this pause, and goes on. Preconditions: paused.
func (m *Machine) nextTracker(saved, next Tracker) error {
	if m.track.finder != nil && saved == next && next == m.track.name {
		return nil
	}
	return m.startTracker(next)
}

// stopTracker forgets what was written.
func (m *Machine) stopTracker() {
	if m.track.finder != nil {
		m.track.finder.stop(m)
	}
	m.track.log.stop(m)
	m.track.name, m.track.finder = "", nil
}

// checkTrackers says whether a save with one tracker can be made, and the next one
// started, as far as that can be known before.
func (m *Machine) checkTrackers(name, next Tracker) error {
	f, err := m.finderOf(name)
	if err != nil {
		return err
	}
	if f != nil && name != m.track.name {
		return fmt.Errorf("vmm: tracker %s was not started: %w", name, ErrTracker)
	}
	_, err = m.finderOf(next)
	return err
}

// candidates returns the pages that may differ from the machine's image.
// Preconditions: checkTrackers.
func (m *Machine) candidates(image *memimage.Image, name Tracker) ([]pagemap.Range, error) {
	switch name {
	case TrackFull:
		return m.allPages(), nil
	case TrackPagemap:
		private, err := m.private()
		if err != nil {
			return nil, err
		}
		return image.Candidates(private), nil
	}
	return m.track.finder.drain(m)
}

// beginAhead returns what may differ now, while the guest runs.
func (m *Machine) beginAhead(name Tracker) ([]pagemap.Range, error) {
	if name == TrackPagemap || name == TrackFull {
		if err := m.track.log.start(m); err != nil {
			return nil, err
		}
	}
	return m.candidates(m.image, name)
}

// again returns what was written since beginAhead.
func (m *Machine) again() ([]pagemap.Range, error) {
	if m.track.finder != nil && !m.track.log.on {
		return m.track.finder.drain(m)
	}
	return m.track.log.drain(m)
}
