package dirty

import (
	"errors"
	"fmt"
	"os"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/internal/uffd"
	"thaw/vmm/protect"
)

// syncWP protects the same pages as asyncWP, by a handler in another process (package
// protect), which takes the protection off when one is written.
type syncWP struct {
	t      *Tracking
	client *protect.Client // nil: off
	// marks has what the balloon gave back and what devices wrote.
	marks *guestmem.Bitmap
}

func (s *syncWP) start() error {
	switch {
	case s.client != nil:
	case s.t.cfg.Handler == nil:
		return fmt.Errorf("dirty: tracker %s: there is no handler of faults: %w", UffdSync, ErrTracker)
	case s.t.device == nil:
		return fmt.Errorf("dirty: tracker %s: no %s was passed: %w", UffdSync, uffd.Device, ErrTracker)
	case s.t.scanner == nil:
		return fmt.Errorf("dirty: tracker %s: no page map was passed: %w", UffdSync, ErrTracker)
	default:
		client, err := protect.Begin(s.t.cfg.Handler, s.t.device, s.t.cfg.Memory.Host())
		if err != nil {
			return syncError(err)
		}
		s.client = client
	}
	s.marks = guestmem.NewBitmap(s.t.cfg.Memory.Size())
	s.t.cfg.Memory.TrackDirty(s.marks)
	// What was written before start is of no interest.
	if _, err := s.drain(); err != nil {
		s.stop()
		return err
	}
	return nil
}

// syncError: a handler that fails takes the tracker with it.
func syncError(err error) error {
	if errors.Is(err, protect.ErrHandler) {
		err = fmt.Errorf("%w: %w", err, ErrTracker)
	}
	return trackerError(UffdSync, err)
}

func (s *syncWP) stop() {
	s.t.cfg.Memory.TrackDirty(nil)
	if s.client == nil {
		return
	}
	if err := s.client.End(); err != nil {
		s.t.cfg.Log(err)
	}
	s.client, s.marks = nil, nil
}

func (s *syncWP) drain() ([]pagemap.Range, error) {
	list, err := s.written()
	if err == nil {
		// Of what is written from here on, the scan tells again, whether it was
		// protected in time or not.
		err = s.client.Protect(list)
	}
	if err != nil {
		return nil, syncError(err)
	}
	return s.withMarks(list), nil
}

func (s *syncWP) written() ([]pagemap.Range, error) {
	return s.t.scanner.Written(s.t.cfg.Memory.Host(), nil)
}

func (s *syncWP) withMarks(list []pagemap.Range) []pagemap.Range {
	for _, r := range list {
		s.marks.SetRange(uint64(r.First)*guestmem.PageSize, uint64(r.Count)*guestmem.PageSize)
	}
	return drainBitmap(s.marks)
}

// Stage is Find with UffdSync that has the pages copied to file, one after the other, as
// they are now. Staged must be called next, when the machine runs again. Preconditions:
// Check, the machine is paused.
func (t *Tracking) Stage(file *os.File) ([]pagemap.Range, error) {
	s := &t.sync
	list, err := s.written()
	if err != nil {
		return nil, syncError(err)
	}
	list = s.withMarks(list)
	t.cfg.Memory.Staged(true)
	if err := s.client.Stage(list, file); err != nil {
		t.cfg.Memory.Staged(false)
		return nil, syncError(err)
	}
	return list, nil
}

// Staged returns when the pages have been copied.
func (t *Tracking) Staged() error {
	defer t.cfg.Memory.Staged(false)
	if err := t.sync.client.Staged(); err != nil {
		return syncError(err)
	}
	return nil
}
