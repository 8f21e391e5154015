package files

import (
	"errors"
	"fmt"
	"io"
	"os"

	"thaw/snapshot/format"
	"thaw/snapshot/pageindex"
)

// maxRecord bounds a recording of pages, in bytes.
const maxRecord = 1 << 20

// Delta reads the index of the changed pages from a state file that a VMM has
// written: hostile until it is checked.
func Delta(state *os.File, pages, stored uint32) (*pageindex.Index, error) {
	file, err := format.Read(state, format.Limits{})
	if err != nil {
		return nil, fmt.Errorf("files: read state: %w", err)
	}
	b, err := file.Section(format.SectionMemory)
	if err != nil {
		return nil, fmt.Errorf("files: read delta: %w", err)
	}
	x, err := pageindex.Decode(b, pages)
	if err != nil {
		return nil, fmt.Errorf("files: read delta: %w", err)
	}
	if x.Pages != pages {
		return nil, fmt.Errorf("files: delta of a memory of %d pages, not %d: %w", x.Pages, pages, errors.ErrUnsupported)
	}
	if err := x.Validate([]uint32{stored}); err != nil {
		return nil, fmt.Errorf("files: read delta: %w", err)
	}
	return x, nil
}

// Recording reads a recording of pages that a VMM has written.
func Recording(f *os.File, pages uint32) (*pageindex.Index, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("files: read recording: %w", err)
	}
	x, err := pageindex.Decode(b, pages)
	if err != nil {
		return nil, fmt.Errorf("files: read recording: %w", err)
	}
	return x, nil
}
