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
	// NextPort is the host's port for its next connection. A restored guest still
	// has sockets for those of before, and refuses a second one between the same
	// ports.
	NextPort uint32 `cbor:"next_port"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := State{CID: d.options.CID, Connections: d.lost, NextPort: d.nextPort}
	if d.active != nil {
		s.Connections, s.NextPort = d.active.believed()
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
	case s.NextPort < firstHostPort:
		return nil, fmt.Errorf("vsock: restore: saved with port %d to come: %w", s.NextPort, virtio.ErrState)
	}
	d, err := New(options)
	if err != nil {
		return nil, err
	}
	d.lost, d.nextPort = s.Connections, s.NextPort
	return d, nil
}
