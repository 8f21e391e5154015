package cgroup

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"
)

// removeDelay is how long a group outlives its processes: a machine of one job is
// destroyed before that.
const removeDelay = 500 * time.Millisecond

// later are the groups that are to be removed in a while.
type later struct {
	hurry  chan struct{}              // closed and replaced when they are to be removed now
	groups map[chan struct{}]struct{} // each closed when its group is gone, or has been given up
}

// maxLater bounds them: each has memory of the kernel's, and is in every snapshot.
const maxLater = 8

// RemoveLater is Remove for a group whose processes are dead: it may stay for a while,
// unless many do. Taking one apart dirties many pages of the kernel's.
func (g *Group) RemoveLater() {
	m, gone := g.m, make(chan struct{})
	m.mu.Lock()
	if len(m.later.groups) >= maxLater {
		m.mu.Unlock()
		g.Remove()
		return
	}
	hurry := m.later.hurry
	m.later.groups[gone] = struct{}{}
	m.mu.Unlock()
	m.wg.Go(func() {
		m.Refill()
		t := time.NewTimer(removeDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-hurry:
		}
		g.rmdir()
		m.mu.Lock()
		delete(m.later.groups, gone)
		m.mu.Unlock()
		close(gone)
	})
}

// RemoveNow removes the groups that were to be removed later, and waits until they are
// gone, at most until the deadline.
func (m *Manager) RemoveNow(deadline time.Time) error {
	t := time.NewTimer(time.Until(deadline))
	defer t.Stop()
	for _, gone := range m.hurry() {
		select {
		case <-gone:
		case <-t.C:
			return fmt.Errorf("cgroup: remove groups of the dead: %w", os.ErrDeadlineExceeded)
		}
	}
	return nil
}

// hurry has them removed now, and returns what is closed then.
func (m *Manager) hurry() []chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.later.hurry)
	m.later.hurry = make(chan struct{})
	return slices.Collect(maps.Keys(m.later.groups))
}
