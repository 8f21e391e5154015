// Package dirty finds the pages that a machine has written, by one of several trackers
// that go by name. docs/adr/0011-dirty-trackers.md compares them.
//
// Each finds candidates: pages among which all are that differ from the image that the
// memory was restored from or saved as last. One page too many costs a comparison, one
// too few a broken snapshot.
package dirty

import (
	"errors"
	"fmt"
	"os"

	"thaw/internal/guestmem"
	"thaw/internal/kvm"
	"thaw/internal/pagemap"
	"thaw/internal/uffd"
)

// Tracker is the name of a tracker.
type Tracker string

// Trackers.
const (
	// Pagemap takes the pages that are private to the process. It costs the guest
	// nothing; the search costs what the guest has written since it was restored,
	// not since the last checkpoint.
	Pagemap Tracker = "pagemap"
	// Log takes KVM's dirty log and what the devices wrote. Each page that the
	// guest writes for the first time after a checkpoint costs it a fault; the
	// search costs what was written since the last checkpoint.
	Log Tracker = "dirty-log"
	// LogKept takes KVM's dirty log without ever clearing it: what was written since
	// it was started. A page that is written again and again, which most are, costs
	// the guest one fault in all; the search costs what was written since the start.
	LogKept Tracker = "dirty-log-kept"
	// Ring takes the rings in which KVM tells of each page that a processor
	// writes, and what the devices wrote. It is for machines whose processors were
	// made with rings, which have no dirty log then.
	Ring Tracker = "dirty-ring"
	// UffdAsync takes the private pages that were written since they were
	// write-protected, which the kernel notes in its page tables. It sees what
	// devices write like what the guest writes.
	UffdAsync Tracker = "uffd-wp-async"
	// UffdSync is UffdAsync by another process, which is told of each first write.
	// It can copy pages before they are written, so that a pause need not (Stage).
	// It is for memory that comes from memfds.
	UffdSync Tracker = "uffd-wp"
	// Full takes every page: what the others are tested against.
	Full Tracker = "full"
)

// NeedsUserfault says whether an open uffd.Device must be passed before a tracker is
// started.
func (t Tracker) NeedsUserfault() bool { return t == UffdAsync || t == UffdSync }

// ErrTracker is wrapped when a tracker is not known or cannot be used here. Nothing
// takes its place.
var ErrTracker = errors.New("dirty tracker cannot be used")

// finder is a tracker that knows what was written since it was started or drained
// last.
//
//	off ──start──▶ on ──drain──▶ on, with nothing found yet
//	 ▲              │
//	 └─────stop─────┘
//
// All may be called while the guest runs: a page is then found by the drain before or
// after, but one that is copied after a drain has all that the drain was told of.
type finder interface {
	start() error
	drain() ([]pagemap.Range, error)
	stop()
}

// Config is what trackers look at.
type Config struct {
	Memory *guestmem.Memory
	VM     *kvm.VM
	Rings  []*kvm.DirtyRing // of the processors; nil: they have none
	// KeepsLog: KVM's dirty log stays when it is read, until it is cleared.
	KeepsLog bool
	// Handler is a socket to a process that runs protect.Serve for this one; nil:
	// there is none.
	Handler *os.File
	Log     func(error)
}

// Tracking is the tracking of one machine. Its methods are called one at a time, but
// for RingFull.
type Tracking struct {
	cfg     Config
	name    Tracker // that was started last; empty: none
	finder  finder  // of name; nil: it needs none
	log     kvmLog  // may be a finder, or stands in while pages are copied ahead
	late    bool    // log has stood in and is to be stopped
	async   asyncWP
	sync    syncWP
	scanner *pagemap.Scanner
	pagemap *os.File // of the scanner
	device  *os.File // uffd.Device, or nil
}

// New returns the tracking of a machine, with no tracker started.
func New(cfg Config) *Tracking {
	t := &Tracking{cfg: cfg}
	t.log.t, t.async.t, t.sync.t = t, t, t
	return t
}

// SetPagemap takes over the process's page map, which only the daemon can open.
func (t *Tracking) SetPagemap(file *os.File) {
	if t.pagemap != nil {
		t.pagemap.Close()
	}
	t.pagemap, t.scanner = file, pagemap.New(file)
}

// SetUserfault takes over an open uffd.Device.
func (t *Tracking) SetUserfault(file *os.File) {
	if t.device != nil {
		t.device.Close()
	}
	t.device = file
}

// Close gives up all that was taken over.
func (t *Tracking) Close() {
	t.async.close()
	for _, f := range []*os.File{t.pagemap, t.device} {
		if f != nil {
			f.Close()
		}
	}
	t.pagemap, t.scanner, t.device = nil, nil, nil
}

// finderOf returns the finder of a tracker; nil for those that look at what there is
// now, and need no beginning.
func (t *Tracking) finderOf(name Tracker) (finder, error) {
	switch name {
	case Pagemap, Full:
		return nil, nil
	case Log, Ring:
		if (name == Ring) != (t.cfg.Rings != nil) {
			return nil, fmt.Errorf("dirty: tracker %s: a machine has either dirty rings or a dirty log, from its start on: %w", name, ErrTracker)
		}
		return &t.log, nil
	case LogKept:
		if !t.cfg.KeepsLog {
			return nil, fmt.Errorf("dirty: tracker %s: kvm clears its log when it is read: %w", name, ErrTracker)
		}
		return keptLog{&t.log}, nil
	case UffdAsync:
		return &t.async, nil
	case UffdSync:
		return &t.sync, nil
	}
	return nil, fmt.Errorf("dirty: tracker %.40q is not known: %w", name, ErrTracker)
}

// Start begins to track against the image that the memory has now. Preconditions: the
// machine is paused.
func (t *Tracking) Start(name Tracker) error {
	f, err := t.finderOf(name)
	if err != nil {
		return err
	}
	if f != t.finder {
		t.Stop()
	}
	t.log.stop() // it may have stood in
	if f != nil {
		if err := f.start(); err != nil {
			return err
		}
	}
	t.name, t.finder = name, f
	return nil
}

// Next has a tracker begin against what was saved just now, by another or by itself:
// then it was drained in this pause, and goes on. Preconditions: the machine is paused.
func (t *Tracking) Next(saved, next Tracker) error {
	if t.finder != nil && saved == next && next == t.name {
		return nil
	}
	if !t.log.on || t.finder != nil {
		return t.Start(next)
	}
	// KVM's log has stood in, and was read in this pause. To take it off is dear,
	// so it becomes the tracker, or waits for the end of the pause.
	f, err := t.finderOf(next)
	if err != nil {
		return err
	}
	if next == Log || next == LogKept || next == Ring {
		t.name, t.finder = next, f
		return nil
	}
	if f != nil {
		return t.Start(next)
	}
	t.name, t.late = next, true
	return nil
}

// EndPause does what Next has left for after the pause.
func (t *Tracking) EndPause() {
	if t.late {
		t.late = false
		t.log.stop()
	}
}

// Name is the tracker that was started last; empty: none.
func (t *Tracking) Name() Tracker { return t.name }

// Follows says whether the tracker that was started follows writes: it finds what was
// written since, and not what is there.
func (t *Tracking) Follows() bool { return t.finder != nil }

// Automatic is the next tracker for a machine whose owner has no wish: the one that
// follows its writes already, or what suits a machine that is saved and rolled back
// again and again.
func (t *Tracking) Automatic() Tracker {
	switch {
	case t.finder != nil:
		return t.name
	case t.cfg.Rings != nil:
		return Ring
	case t.cfg.KeepsLog:
		return LogKept
	}
	return Log
}

// Stop forgets what was written.
func (t *Tracking) Stop() {
	if t.finder != nil {
		t.finder.stop()
	}
	t.log.stop()
	t.name, t.finder = "", nil
}

// Check says whether Find can be called, and the next tracker started, as far as that
// can be known before.
func (t *Tracking) Check(name, next Tracker) error {
	f, err := t.finderOf(name)
	if err != nil {
		return err
	}
	if f != nil && name != t.name {
		return fmt.Errorf("dirty: tracker %s was not started: %w", name, ErrTracker)
	}
	_, err = t.finderOf(next)
	return err
}

// Find returns what was written since the tracker was started or had found something
// last: all pages with Full, all private ones with Pagemap. Preconditions: Check.
func (t *Tracking) Find(name Tracker) ([]pagemap.Range, error) {
	switch name {
	case Full:
		return []pagemap.Range{{First: 0, Count: uint32(t.cfg.Memory.Size() / guestmem.PageSize)}}, nil
	case Pagemap:
		return t.Private()
	}
	return t.finder.drain()
}

// FindAhead is Find while the guest runs. FindAgain returns what was written since.
func (t *Tracking) FindAhead(name Tracker) ([]pagemap.Range, error) {
	switch name {
	case Pagemap, Full:
		if err := t.log.start(); err != nil {
			return nil, err
		}
	case LogKept:
		// What was kept so far is not to be found again in the pause.
		return t.log.drain()
	}
	return t.Find(name)
}

// FindAgain returns what was written since FindAhead. Preconditions: the machine is
// paused.
func (t *Tracking) FindAgain() ([]pagemap.Range, error) {
	if t.finder != nil && !t.log.on {
		return t.finder.drain()
	}
	return t.log.drain()
}

// Private returns the pages that are this process's own, swapped ones included.
func (t *Tracking) Private() ([]pagemap.Range, error) {
	if t.scanner == nil {
		return nil, fmt.Errorf("dirty: no page map was passed: %w", ErrTracker)
	}
	return t.scanner.Private(t.cfg.Memory.Host(), nil)
}

// trackerError tells what the host cannot do from what went wrong.
func trackerError(name Tracker, err error) error {
	if errors.Is(err, uffd.ErrNotSupported) || errors.Is(err, pagemap.ErrNotSupported) {
		err = fmt.Errorf("%w: %w", err, ErrTracker)
	}
	return fmt.Errorf("dirty: tracker %s: %w", name, err)
}
