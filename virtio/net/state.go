package net

import (
	"fmt"
	"os"

	"thaw/virtio"
)

// State is a saved device. It comes from a snapshot file: untrusted. Frames
// under way are not part of it: networks lose frames.
type State struct {
	MAC      [6]byte  `cbor:"mac"`
	MTU      uint16   `cbor:"mtu"`
	Offload  bool     `cbor:"offload"`
	LinkDown bool     `cbor:"link_down"` // as the driver knows it
	Counters Counters `cbor:"counters"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return State{
		MAC: d.options.MAC, MTU: d.options.MTU, Offload: d.options.Offload, LinkDown: !d.linkUp,
		Counters: d.metrics.Counters(),
	}
}

// Restore returns a saved device, inactive, on a tap. options must be those that
// the state was saved with: the driver negotiated with them. When the device
// first runs it drops the frames that wait in the tap, and tells a driver that
// had lost its link that it is up again. An error about the state wraps
// virtio.ErrState.
func Restore(tap *os.File, options Options, s State) (*Device, error) {
	if saved := (Options{MAC: s.MAC, MTU: s.MTU, Offload: s.Offload}); saved != options {
		return nil, fmt.Errorf("net: restore device: saved with %+v, not %+v: %w", saved, options, virtio.ErrState)
	}
	d, err := New(tap, options)
	if err != nil {
		return nil, err
	}
	d.linkUp, d.restored = !s.LinkDown, true
	d.metrics.restore(s.Counters)
	return d, nil
}
