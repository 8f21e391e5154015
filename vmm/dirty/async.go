package dirty

import (
	"fmt"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/internal/uffd"
)

// asyncWP write-protects the pages that the machine has made its own. The kernel lets
// each write through and takes the protection off, which the page map shows: what
// differs is private, and unprotected.
//
//	page of the base ──first write──▶ private ──drain──▶ private, protected
//	                                     ▲                    │
//	                                     └───────write────────┘
//
// Pages that are not private need no protection: to write one makes it private.
// Protecting them would fill the page tables of memory that was never touched, and
// so keep it from being touched in huge pages.
type asyncWP struct {
	t  *Tracking
	fd *uffd.FD // all of the memory is registered with it; nil: off
	// marks has what the balloon gave back, which is nowhere in the page map, and
	// what devices wrote, which is.
	marks *guestmem.Bitmap
}

// asyncFeatures: without the second, anonymous memory is not protected at all.
const asyncFeatures = uffd.WriteProtectAsync | uffd.WriteProtectUnpopulated

// Joining parts that are to be protected spares calls; between them lies what KVM
// forgets although it was not written (pagemap.Scanner.Protect).
const (
	joinPages   = 32  // smaller gaps are joined
	protectAway = 512 // more parts than that are protected as one
)

func (a *asyncWP) start() error {
	if a.fd == nil {
		if err := a.open(); err != nil {
			return err
		}
	}
	a.marks = guestmem.NewBitmap(a.t.cfg.Memory.Size())
	a.t.cfg.Memory.TrackDirty(a.marks)
	// What was written before start is of no interest.
	_, err := a.drain()
	if err != nil {
		a.stop()
	}
	return err
}

func (a *asyncWP) open() error {
	switch {
	case a.t.device == nil:
		return fmt.Errorf("dirty: tracker %s: no %s was passed: %w", UffdAsync, uffd.Device, ErrTracker)
	case a.t.scanner == nil:
		return fmt.Errorf("dirty: tracker %s: no page map was passed: %w", UffdAsync, ErrTracker)
	}
	fd, err := uffd.Open(a.t.device, asyncFeatures)
	if err == nil {
		if err = fd.Register(uffd.Of(a.t.cfg.Memory.Host())); err != nil {
			fd.Close()
		}
	}
	if err != nil {
		return trackerError(UffdAsync, err)
	}
	a.fd = fd
	return nil
}

func (a *asyncWP) stop() {
	a.t.cfg.Memory.TrackDirty(nil)
	a.marks = nil
	a.close()
}

// close ends all protection.
func (a *asyncWP) close() {
	if a.fd != nil {
		a.fd.Close() // it cannot fail in a way that matters: nothing was written
		a.fd = nil
	}
}

func (a *asyncWP) drain() ([]pagemap.Range, error) {
	if err := a.protect(); err != nil {
		return nil, err
	}
	return drainBitmap(a.marks), nil
}

// protect marks the private pages that were written, and protects them.
func (a *asyncWP) protect() error {
	host := a.t.cfg.Memory.Host()
	list, err := a.t.scanner.Written(host, nil)
	if err != nil {
		return trackerError(UffdAsync, err)
	}
	for _, part := range joined(list) {
		offset := uint64(part.First) * guestmem.PageSize
		// Not list: a page between may have been written meanwhile.
		err := a.t.scanner.Protect(host[offset:][:uint64(part.Count)*guestmem.PageSize], func(r pagemap.Range) {
			a.marks.SetRange(offset+uint64(r.First)*guestmem.PageSize, uint64(r.Count)*guestmem.PageSize)
		})
		if err != nil {
			return trackerError(UffdAsync, err)
		}
	}
	return nil
}

// joined returns the parts of memory in which the pages of list are.
func joined(list []pagemap.Range) []pagemap.Range {
	var parts []pagemap.Range
	for _, r := range list {
		if n := len(parts); n > 0 && r.First-(parts[n-1].First+parts[n-1].Count) <= joinPages {
			parts[n-1].Count = r.First + r.Count - parts[n-1].First
			continue
		}
		parts = append(parts, r)
	}
	if n := len(parts); n > protectAway {
		first, last := parts[0].First, parts[n-1]
		parts = []pagemap.Range{{First: first, Count: last.First + last.Count - first}}
	}
	return parts
}
