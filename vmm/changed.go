package vmm

import (
	"fmt"

	"thaw/internal/pagemap"
)

// Changed counts the pages that differ from the image that the machine was restored from
// or saved as last, and those that were looked at. The machine runs on meanwhile: nothing
// of what its tracker knows is used up.
func (m *Machine) Changed() (differ, looked int, err error) {
	if m.image == nil || m.lost {
		return 0, 0, fmt.Errorf("vmm: count changes: there is no image to compare with: %w", ErrShell)
	}
	private, err := m.track.Private()
	if err != nil {
		return 0, 0, err
	}
	list := m.image.Candidates(private)
	differ, err = m.image.Differ(m.mem, list)
	return differ, pagemap.Pages(list), err
}
