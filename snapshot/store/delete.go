package store

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"thaw/snapshot/durable"
	"thaw/snapshot/plan"
)

// Delete removes a snapshot. It refuses with ErrChildren while other snapshots need
// it, and with ErrInUse while a machine has a lease of it or it is pinned. With
// cascade, what needs it goes too: all of it or, if any of it is in use, nothing.
func (s *Store) Delete(id string, cascade bool) error {
	ids, err := s.doom(id, cascade)
	if err != nil {
		return err
	}
	defer s.spare(ids)
	if len(ids) == 1 {
		return s.deleteOne(id)
	}
	dir, err := s.plans().New()
	if err != nil {
		return err
	}
	decided, err := s.plans().Decide(dir, plan.Plan{Remove: ids})
	if !decided {
		os.RemoveAll(dir)
		return err
	}
	// Decided is done: what an error left is finished by the next Open.
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.drop(id)
	}
	return err
}

// doom returns what is to be deleted, children first, and keeps it from being
// leased or edited until it is gone or spared.
func (s *Store) doom(id string, cascade bool) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[id] == nil {
		return nil, fmt.Errorf("store: delete %.40q: %w", id, ErrNotFound)
	}
	ids := s.dependents(id)
	if len(ids) > 1 && !cascade {
		return nil, fmt.Errorf("store: delete %s, which %d others need: %w", id, len(ids)-1, ErrChildren)
	}
	for _, d := range s.drafts {
		if slices.Contains(ids, d.spec.Parent) {
			return nil, fmt.Errorf("store: delete %s while a checkpoint of it is written: %w", d.spec.Parent, ErrInUse)
		}
	}
	for _, id := range ids {
		if e := s.entries[id]; e.leases > 0 || s.editing[id] != nil || e.m != nil && e.m.Pinned {
			return nil, fmt.Errorf("store: delete %s: %w", id, ErrInUse)
		}
	}
	for _, id := range ids {
		s.editing[id] = make(chan struct{})
		s.entries[id].doomed = true
	}
	return ids, nil
}

// spare undoes doom for what was not deleted.
func (s *Store) spare(ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.edited(id)
		if e := s.entries[id]; e != nil {
			e.doomed = false
		}
	}
}

// dependents is id and all that needs it, directly or not, in an order in which each
// comes after all that need it. Preconditions: mu is held.
func (s *Store) dependents(id string) []string {
	var out []string
	seen := map[string]bool{}
	var visit func(id string)
	visit = func(id string) {
		if seen[id] {
			return
		}
		seen[id] = true
		for _, child := range slices.Sorted(maps.Keys(s.needed[id])) {
			visit(child)
		}
		if s.entries[id] != nil {
			out = append(out, id)
		}
	}
	visit(id)
	return out
}

// deleteOne deletes a snapshot that nobody needs.
func (s *Store) deleteOne(id string) error {
	gone := filepath.Join(s.work(), plan.Gone+id)
	if err := os.Rename(s.dir(id), gone); err != nil {
		return fmt.Errorf("store: delete snapshot: %w", err)
	}
	s.mu.Lock()
	s.drop(id)
	s.mu.Unlock()
	if err := s.at(stepDeleted); err != nil {
		return err
	}
	if err := durable.SyncDir(s.snapshots()); err != nil {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("store: remove snapshot: %w", err)
	}
	return s.at(stepRemoved)
}
