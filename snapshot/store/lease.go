package store

import (
	"context"
	"fmt"
	"sync"
)

// Lease keeps a snapshot, and so all that it needs, from being deleted: a machine
// holds one as long as it may be rolled back to it.
type Lease struct {
	Manifest *Manifest

	store *Store
	reads bool // counted as a chain's
	once  sync.Once
}

// Lease takes a lease. Errors as of Get.
func (s *Store) Lease(id string) (*Lease, error) { return s.lease(id, false) }

// lease with reads also keeps all that the manifest names, should it be replaced
// meanwhile.
func (s *Store) lease(id string, reads bool) (*Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.usable(id)
	if err != nil {
		return nil, err
	}
	e.leases++
	if reads {
		e.reads++
	}
	s.touch(id, e)
	return &Lease{Manifest: e.m, store: s, reads: reads}, nil
}

// Release gives the lease back. A second call does nothing.
func (l *Lease) Release() {
	l.once.Do(func() {
		l.store.mu.Lock()
		defer l.store.mu.Unlock()
		if e := l.store.entries[l.Manifest.ID]; e != nil {
			e.leases--
			if l.reads {
				e.reads--
			}
			if e.reads == 0 && e.former != nil {
				now := *e
				s := l.store
				s.drop(l.Manifest.ID)
				now.former = nil
				s.add(l.Manifest.ID, &now)
			}
		}
	})
}

// hold is a lease for an operation that replaces the manifest: one at a time. A
// checkpoint whose parent is held waits for its release (holdParent).
func (s *Store) hold(id string) (release func(), m *Manifest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.usable(id)
	if err != nil {
		return nil, nil, err
	}
	if s.editing[id] != nil {
		return nil, nil, fmt.Errorf("store: snapshot %s is being changed: %w", id, ErrInUse)
	}
	s.editing[id] = make(chan struct{})
	e.leases++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.edited(id)
		if e := s.entries[id]; e != nil {
			e.leases--
		}
	}, e.m, nil
}

// edited ends what began with an entry in editing. Preconditions: mu is held.
func (s *Store) edited(id string) {
	close(s.editing[id])
	delete(s.editing, id)
}

// settled waits until nobody is changing the snapshot, and leases it.
func (s *Store) settled(ctx context.Context, id string) (*Lease, error) {
	for {
		s.mu.Lock()
		busy := s.editing[id]
		s.mu.Unlock()
		if busy == nil {
			return s.lease(id, true)
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, fmt.Errorf("store: wait for %s: %w", id, ctx.Err())
		}
	}
}
