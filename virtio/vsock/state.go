package vsock

import (
	"fmt"

	"thaw/virtio"
)

// State is what a socket device has besides its queues. Connections are not
// saved: a restored guest that had some is told that they are gone (virtio 1.3
// §5.10.6.7). It comes from a snapshot file: untrusted.
type State struct {
	CID uint64 `cbor:"cid"`
	// Connections is how many the guest believes open or opening, those of before
	// an earlier restore included of which it has not been told yet.
	Connections uint32 `cbor:"connections"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := State{CID: d.options.CID, Connections: d.lost}
	if d.active != nil {
		s.Connections = d.active.believed()
	}
	return s
}

// Restore returns an inactive device in a saved state. An error wraps
// virtio.ErrState.
func Restore(options Options, s State) (*Device, error) {
	switch {
	case s.CID != options.CID:
		return nil, fmt.Errorf("vsock: restore: saved with context id %d, machine has %d: %w", s.CID, options.CID, virtio.ErrState)
	case s.Connections > maxConns:
		return nil, fmt.Errorf("vsock: restore: saved with %d connections: %w", s.Connections, virtio.ErrState)
	}
	d, err := New(options)
	if err != nil {
		return nil, err
	}
	d.lost = s.Connections
	return d, nil
}
