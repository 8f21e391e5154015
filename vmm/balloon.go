package vmm

import (
	"context"
	"errors"

	"thaw/virtio/balloon"
)

var errNoBalloon = errors.New("vmm: machine has no balloon")

// SetBalloon asks the guest to give back mib MiB of its memory; zero gives
// all of it back to the guest. It fails on a machine without a balloon.
func (m *Machine) SetBalloon(mib uint64) error {
	if m.devices.balloon == nil {
		return errNoBalloon
	}
	return m.devices.balloon.SetTarget(mib)
}

// MemoryStats asks the guest how it uses its memory.
func (m *Machine) MemoryStats(ctx context.Context) (balloon.Stats, error) {
	if m.devices.balloon == nil {
		return balloon.Stats{}, errNoBalloon
	}
	return m.devices.balloon.Stats(ctx)
}
