package store

import (
	"context"
	"errors"
	"slices"

	"thaw/snapshot/durable"
)

// Watermark says when GC works and how far. Sizes are in bytes.
type Watermark struct {
	High int64 // GC does nothing while the store takes no more than this
	Low  int64 // and else deletes until it takes no more than this
	// MinFree makes GC go on while the file system has less than this free.
	MinFree int64
}

// GC deletes snapshots, one leaf at a time, the least recently used first, until the
// store is below the watermark. It never deletes what has a lease, a pin, children
// or a draft on it. keep, if not nil, protects others. It returns what it deleted.
func (s *Store) GC(ctx context.Context, w Watermark, keep func(*Manifest) bool) ([]string, error) {
	var gone []string
	over := func(limit int64) (bool, error) {
		if s.Used() > limit {
			return true, nil
		}
		free, err := durable.Free(s.root)
		return free < w.MinFree, err
	}
	if err := s.trimAll(); err != nil {
		return nil, err
	}
	if work, err := over(w.High); err != nil || !work {
		return nil, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return gone, err
		}
		if more, err := over(w.Low); err != nil || !more {
			return gone, err
		}
		done := true
		for _, id := range s.leaves(keep) {
			err := s.Delete(id, false)
			if errors.Is(err, ErrInUse) || errors.Is(err, ErrChildren) || errors.Is(err, ErrNotFound) {
				continue // taken since
			}
			if err != nil {
				return gone, err
			}
			gone, done = append(gone, id), false
			break // its parent may be a leaf now, and used less recently than the next
		}
		if done {
			return gone, nil
		}
	}
}

// leaves is what may be deleted, the least recently used first.
func (s *Store) leaves(keep func(*Manifest) bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, id := range s.sortedIDs() {
		e := s.entries[id]
		if len(s.needed[id]) > 0 || e.leases > 0 || e.doomed || s.editing[id] != nil || e.err != nil || e.m.Pinned || keep != nil && keep(e.m) {
			continue
		}
		ids = append(ids, id)
	}
	slices.SortStableFunc(ids, func(a, b string) int { return s.entries[a].used.Compare(s.entries[b].used) })
	return ids
}
