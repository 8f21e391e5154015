package balloon

import (
	"cmp"
	"slices"

	"thaw/internal/guestmem"
)

// Reclaimer gives guest memory back to the host. guestmem.Memory is one.
type Reclaimer interface {
	// Reclaim gives back the n bytes at guest physical address gpa, both
	// multiples of the page size, n above zero, all of it inside one region
	// of RAM. It may be called from several goroutines, never while paused.
	//
	// It is the same for both callers. What the guest finds there later is not
	// defined, as long as it is its own: zeros, what was there, or what its
	// snapshot has there. For pages in the balloon that is §5.5.6.1; for reported
	// ones §5.5.6.7.2, as PAGE_POISON is not offered: a Linux that counts on
	// what is in its free pages then does not report them. It must be done when
	// Reclaim returns: the guest may use a reported page as soon as it is
	// answered. The pages count as changed, whichever of these it is.
	//
	// zeros: the guest finds nothing but zeros there.
	Reclaim(gpa, n uint64) (zeros bool, err error)
}

var _ Reclaimer = (*guestmem.Memory)(nil)

// span is a run of guest memory in bytes.
type span struct{ gpa, n uint64 }

// reclaimer checks what the guest wants to give back, and does it.
type reclaimer struct {
	host    Reclaimer
	memory  *guestmem.Memory
	metrics *Metrics
}

// isRAM says whether a span lies inside one region of RAM. From the guest:
// any address, any length.
func (r *reclaimer) isRAM(s span) bool {
	for _, region := range r.memory.Regions() {
		if s.gpa >= region.Base && s.gpa-region.Base < region.Size {
			return s.n <= region.Size-(s.gpa-region.Base)
		}
	}
	return false
}

// give reclaims spans, which it sorts and joins first, and returns how many
// bytes the host took, and how many of them are zeros now. Preconditions: each is
// page-aligned RAM. A span that the host does not take stays with the guest, which
// loses nothing by it.
func (r *reclaimer) give(spans []span) (given, zeros uint64) {
	for _, s := range join(spans) {
		// Marked even when it fails: half of the run may be gone.
		r.memory.MarkDirty(s.gpa, s.n)
		r.metrics.Reclaims.Add(1)
		zero, err := r.host.Reclaim(s.gpa, s.n)
		if err != nil {
			r.metrics.Failed.Add(1)
			continue
		}
		given += s.n
		if zero {
			zeros += s.n
		}
	}
	return given, zeros
}

// join sorts spans by address and makes one of those that touch or overlap,
// in place. Two regions of RAM never touch, so no span comes to cross them.
func join(spans []span) []span {
	if len(spans) == 0 {
		return spans
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.gpa, b.gpa) })
	last := 0
	for _, s := range spans[1:] {
		l := &spans[last]
		if s.gpa <= l.gpa+l.n {
			l.n = max(l.n, s.gpa-l.gpa+s.n)
			continue
		}
		last++
		spans[last] = s
	}
	return spans[:last+1]
}
