package vmm

import (
	"fmt"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
)

// Trackers that look at what there is now: full and pagemap.

func (m *Machine) allPages() []pagemap.Range {
	return []pagemap.Range{{First: 0, Count: uint32(m.mem.Size() / guestmem.PageSize)}}
}

// private returns the pages that are this process's own, swapped ones included.
func (m *Machine) private() ([]pagemap.Range, error) {
	if m.track.scanner == nil {
		return nil, fmt.Errorf("vmm: no page map was passed: %w", ErrTracker)
	}
	return m.track.scanner.Private(m.mem.Host(), nil)
}
