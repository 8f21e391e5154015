package disk

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Freeze puts top, an empty file, on the pile: what was written so far stays
// as it is from now on. No block is touched. The caller keeps the file that
// was on top until now, and may read it while the disk is used.
func (d *Disk) Freeze(top *os.File) error {
	if d.readOnly {
		return ErrReadOnly
	}
	if len(d.layers) == MaxLayers {
		return fmt.Errorf("disk: freeze layer %d: %w", len(d.layers)-1, ErrLayers)
	}
	l, err := newLayer(top, true)
	if err != nil {
		return fmt.Errorf("disk: open new layer: %w", err)
	}
	if _, err := l.length(); err != nil {
		return fmt.Errorf("disk: stat new layer: %w", err)
	}
	empty, err := l.empty()
	if err != nil {
		return fmt.Errorf("disk: look for data in new layer: %w", err)
	}
	if !empty {
		return fmt.Errorf("disk: new layer holds data: %w", ErrLayers)
	}
	if d.index == nil {
		d.index = newIndex(d.size)
	}
	d.index.claims = nil
	d.layers = append(d.layers, l)
	return nil
}

// Drop takes back everything written since the last Freeze, or since the disk
// was opened, and empties the top file for what comes next. The cost is that
// of what was written. A disk of one file has nothing to go back to.
func (d *Disk) Drop() error {
	switch {
	case d.readOnly:
		return ErrReadOnly
	case d.index == nil:
		return fmt.Errorf("disk: drop the only layer: %w", ErrLayers)
	}
	d.index.drop()
	if err := unix.Ftruncate(d.top().fd, 0); err != nil {
		return fmt.Errorf("disk: empty the top layer: %w", err)
	}
	return nil
}

// Written is the number of blocks that the top holds, those of zeros included.
func (d *Disk) Written() int {
	if d.index == nil {
		return 0
	}
	return len(d.index.claims)
}
