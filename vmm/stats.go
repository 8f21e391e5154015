package vmm

import (
	"context"

	"thaw/virtio/balloon"
)

// Stats counts what a machine did since it was made.
type Stats struct {
	// Exits to user space, of all processors.
	PortIO, MMIORead, MMIOWrite, OtherExits uint64
}

// Stats returns the counters. They may be some steps apart from each other.
func (m *Machine) Stats() Stats {
	var s Stats
	for _, c := range m.vcpus {
		s.PortIO += c.exit.PortIO.Load()
		s.MMIORead += c.exit.MMIORead.Load()
		s.MMIOWrite += c.exit.MMIOWrite.Load()
		s.OtherExits += c.exit.Other.Load()
	}
	return s
}

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
