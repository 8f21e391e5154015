package block

import (
	"fmt"

	"thaw/virtio"
	"thaw/virtio/block/disk"
)

// State is what a snapshot keeps of a device. It comes from a file when it is
// restored: untrusted.
type State struct {
	ID       string     `cbor:"id"`
	ReadOnly bool       `cbor:"read_only"`
	Features uint64     `cbor:"features"` // offered
	Disk     disk.State `cbor:"disk"`
	Counters Counters   `cbor:"counters"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	return State{
		ID: d.name, ReadOnly: d.disk.ReadOnly(), Features: d.Features(), Disk: d.disk.State(),
		Counters: d.metrics.Counters(),
	}
}

// Restore returns an inactive device with a saved state on the layers of options,
// whose ID and ReadOnly must be those of the state. An error about the state
// wraps virtio.ErrState; Previous can still be used then.
func Restore(options Options, s State) (*Device, error) {
	if s.ID != options.ID || s.ReadOnly != options.ReadOnly {
		return nil, fmt.Errorf("block: restore disk %q from the state of %q: %w", options.ID, s.ID, virtio.ErrState)
	}
	if want := deviceFeatures(options.ReadOnly); s.Features != want {
		return nil, fmt.Errorf("block: restore disk %q with features %#x, have %#x: %w", options.ID, s.Features, want, virtio.ErrState)
	}
	var d *disk.Disk
	if options.Previous != nil {
		d = disk.Rewind(options.Previous.disk, options.Layers, options.ReadOnly, s.Disk)
	}
	if d == nil {
		var err error
		if d, err = disk.Restore(options.Layers, options.ReadOnly, s.Disk); err != nil {
			return nil, fmt.Errorf("block: restore disk %q: %w: %w", options.ID, err, virtio.ErrState)
		}
	}
	dev, err := newDevice(options.ID, d)
	if err != nil {
		return nil, err
	}
	dev.metrics.restore(s.Counters)
	return dev, nil
}
