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
	Counters Counters `cbor:"counters"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	return State{
		MAC: d.options.MAC, MTU: d.options.MTU, Offload: d.options.Offload,
		Counters: d.metrics.Counters(),
	}
}

// Restore returns a saved device, inactive, on a tap of its own, whose link
// is up. options must be those that the state was saved with: the driver
// negotiated with them. An error about the state wraps virtio.ErrState.
func Restore(tap *os.File, options Options, s State) (*Device, error) {
	if saved := (Options{MAC: s.MAC, MTU: s.MTU, Offload: s.Offload}); saved != options {
		return nil, fmt.Errorf("net: restore device: saved with %+v, not %+v: %w", saved, options, virtio.ErrState)
	}
	d, err := New(tap, options)
	if err != nil {
		return nil, err
	}
	d.metrics.restore(s.Counters)
	return d, nil
}
