package balloon

import (
	"fmt"

	"thaw/virtio"
)

// State is a saved device. It comes from a snapshot file: untrusted.
type State struct {
	TargetPages uint32   `cbor:"target_pages"`
	ActualPages uint32   `cbor:"actual_pages"` // the guest's word
	Counters    Counters `cbor:"counters"`
}

// State saves the device. Preconditions: paused or inactive.
func (d *Device) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return State{
		TargetPages: d.config.target(), ActualPages: d.config.actual(),
		Counters: d.metrics.Counters(),
	}
}

// Restore returns a saved device, inactive. An error about the state wraps
// virtio.ErrState.
func Restore(options Options, s State) (*Device, error) {
	d, err := New(options)
	if err != nil {
		return nil, err
	}
	if uint64(s.TargetPages)*pageSize > options.MemoryBytes || s.TargetPages%pagesPerMiB != 0 {
		return nil, fmt.Errorf("balloon: restore device: target of %d pages: %w", s.TargetPages, virtio.ErrState)
	}
	d.config.setTarget(s.TargetPages)
	d.config.setActual(s.ActualPages)
	d.metrics.restore(s.Counters)
	return d, nil
}
