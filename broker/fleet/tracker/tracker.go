// Package tracker says which trackers of dirty pages a host's machines can have, and
// which of them one machine can be asked for.
package tracker

import (
	"fmt"
	"sync"

	"thaw/vmm/dirty"
)

// Host lists all trackers with their availability on this host. It looks once.
var Host = sync.OnceValue(dirty.Host)

// NeedsRings says whether a tracker is for machines that are made for it: KVM gives
// their processors dirty rings, and no dirty log.
func NeedsRings(name string) bool { return dirty.Tracker(name) == dirty.Ring }

// Check says whether the checkpoints of a machine, with rings or without, can have the
// pages found by a tracker; "" leaves the choice to the machine. The error wraps
// dirty.ErrTracker.
func Check(name string, rings bool) error {
	if name == "" {
		return nil
	}
	for _, a := range Host() {
		if string(a.Tracker) != name {
			continue
		}
		log := a.Tracker == dirty.Log || a.Tracker == dirty.LogKept
		if NeedsRings(name) && !rings || log && rings {
			return fmt.Errorf("tracker: %s: a machine has either dirty rings or a dirty log, from its start on: %w", name, dirty.ErrTracker)
		}
		return a.Err
	}
	return fmt.Errorf("tracker: %.40q is not known: %w", name, dirty.ErrTracker)
}
