package rng

import (
	"fmt"

	"thaw/virtio"
)

// State is what a snapshot keeps of a device: that a guest has used up its
// bytes is not forgotten by a rollback. It comes from a file when it is
// restored: untrusted.
type State struct {
	Rate     int64    `cbor:"rate"`
	Tokens   int64    `cbor:"tokens"`
	Counters Counters `cbor:"counters"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	return State{
		Rate: d.bucket.rate, Tokens: d.bucket.tokens,
		Counters: d.metrics.Counters(),
	}
}

// Restore returns an inactive device with a saved state. An error about the
// state wraps virtio.ErrState.
func Restore(options Options, s State) (*Device, error) {
	d, err := New(options)
	if err != nil {
		return nil, err
	}
	if s.Rate != options.Rate || s.Tokens > d.bucket.size || s.Tokens < -MaxRequest {
		return nil, fmt.Errorf("rng: restore %d tokens at %d bytes a second, want %d: %w", s.Tokens, s.Rate, options.Rate, virtio.ErrState)
	}
	d.bucket.tokens = s.Tokens
	d.metrics.restore(s.Counters)
	return d, nil
}
