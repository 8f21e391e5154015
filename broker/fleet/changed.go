package fleet

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// Change is how much of a machine is not as it was when it was last restored, rolled back
// or saved.
type Change struct {
	Pages     int   // of its memory, that differ; the VMM's word
	DiskBytes int64 // of blocks of its disk that were written
}

// Changed counts. The machine runs on; what it writes meanwhile may count or not.
func (m *Machine) Changed(ctx context.Context) (Change, error) {
	if err := m.begin(ctx); err != nil {
		return Change{}, err
	}
	defer m.end()
	pages, _, err := m.shell.proc.Changed(ctx)
	if err != nil {
		return Change{}, err
	}
	// The top layer is new since then, and has what was written.
	var st unix.Stat_t
	if err := unix.Fstat(int(m.shell.topFile().Fd()), &st); err != nil {
		return Change{}, fmt.Errorf("fleet: machine %s: look at disk layer: %w", m.id, err)
	}
	return Change{Pages: pages, DiskBytes: st.Blocks * 512}, nil
}
