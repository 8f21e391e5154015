package disk

import (
	"fmt"
	"os"
)

// Freeze puts top, an empty file, on the pile: what was written so far stays
// as it is from now on. No block is touched. The caller may read the file that
// was on top until now while the disk is used, and makes it durable: Sync no
// longer does.
func (d *Disk) Freeze(top *os.File) error {
	if d.readOnly {
		return ErrReadOnly
	}
	if len(d.layers) == MaxLayers {
		return fmt.Errorf("disk: freeze layer %d: %w", len(d.layers)-1, ErrLayers)
	}
	l, err := newLayer(top, true, d.layers)
	if err != nil {
		return fmt.Errorf("disk: open new layer: %w", err)
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
	d.index.settle(len(d.layers) - 1)
	d.layers = append(d.layers, l)
	return nil
}

// Drop takes back everything written since the last Freeze, or since the disk
// was opened. The cost is one index entry for each block written: the file is
// left alone, since emptying it would take fifty times as long. The dropped
// bytes stay in it, out of reach, until they are overwritten; who copies a
// layer goes by the index. A disk of one file has nothing to go back to.
func (d *Disk) Drop() error {
	switch {
	case d.readOnly:
		return ErrReadOnly
	case d.index == nil:
		return fmt.Errorf("disk: drop the only layer: %w", ErrLayers)
	}
	d.index.drop()
	return nil
}

// Written is the number of blocks that the top holds, those of zeros included.
func (d *Disk) Written() int {
	if d.index == nil {
		return 0
	}
	return d.index.count
}
