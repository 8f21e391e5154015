package vsock

import (
	"fmt"

	"thaw/virtio"
)

// State is what a socket device has besides its queues. Connections are not
// saved: a restored guest is told that they are gone (virtio 1.3 §5.10.6.7).
// It comes from a snapshot file: untrusted.
type State struct {
	CID uint64 `cbor:"cid"`
}

// State saves the device.
func (d *Device) State() State { return State{CID: d.options.CID} }

// Restore returns an inactive device in a saved state. An error wraps
// virtio.ErrState.
func Restore(options Options, s State) (*Device, error) {
	if s.CID != options.CID {
		return nil, fmt.Errorf("vsock: restore: saved with context id %d, machine has %d: %w", s.CID, options.CID, virtio.ErrState)
	}
	d, err := New(options)
	if err != nil {
		return nil, err
	}
	d.resetEvent = true
	return d, nil
}
