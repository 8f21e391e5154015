package store

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"thaw/snapshot/manifest"
)

// entry is a snapshot as the store knows it.
type entry struct {
	m      *Manifest   // nil if the manifest cannot be read
	err    error       // why it cannot be used, or nil
	leases int         // of machines
	reads  int         // leases of chains: they may open any layer of the manifest that they found
	former []*Manifest // that open chains were resolved with; what they need stays
	doomed bool        // being deleted: no lease any more
	used   time.Time   // last
	bytes  int64       // on disk
}

// needs is the snapshots that this one, or a chain that is open, cannot do without.
func (e *entry) needs() map[string]bool {
	needs := e.m.Needs()
	for _, m := range e.former {
		maps.Copy(needs, m.Needs())
	}
	return needs
}

// eachRef calls f with each layer of the snapshot, and of open chains.
func (e *entry) eachRef(f func(Ref)) {
	e.m.EachRef(f)
	for _, m := range e.former {
		m.EachRef(f)
	}
}

// add puts a snapshot into the catalogue. Preconditions: mu is held, or nobody else
// knows the store yet.
func (s *Store) add(id string, e *entry) {
	if old := s.entries[id]; old != nil {
		s.drop(id)
	}
	s.entries[id] = e
	if e.m == nil {
		return
	}
	for need := range e.needs() {
		if s.needed[need] == nil {
			s.needed[need] = map[string]bool{}
		}
		s.needed[need][id] = true
	}
}

// drop takes a snapshot out. Preconditions: mu is held.
func (s *Store) drop(id string) {
	e := s.entries[id]
	delete(s.entries, id)
	s.indexes.drop(id)
	own := func(key string) bool { return key[:manifest.IDLength] == id }
	s.files.Forget(own)
	maps.DeleteFunc(s.verified, func(key string, _ bool) bool { return own(key) })
	if e == nil || e.m == nil {
		return
	}
	for need := range e.needs() {
		delete(s.needed[need], id)
		if len(s.needed[need]) == 0 {
			delete(s.needed, need)
		}
	}
}

// sortedIDs is every id, in order. Preconditions: mu is held.
func (s *Store) sortedIDs() []string { return slices.Sorted(maps.Keys(s.entries)) }

// judge decides which snapshots can be used, by their lineage and layers. It is called
// once, when all manifests have been read.
func (s *Store) judge() {
	const (
		inside = 1 // being looked at: meeting it again is a cycle
		done   = 2
	)
	state := map[string]int{}
	var visit func(id string) error
	visit = func(id string) error {
		e := s.entries[id]
		switch {
		case e == nil:
			return fmt.Errorf("store: snapshot %s: %w", id, ErrParentMissing)
		case state[id] == inside:
			return fmt.Errorf("store: snapshot %s: %w", id, ErrCycle)
		case state[id] == done || e.err != nil:
			return e.err
		}
		state[id] = inside
		e.err = s.judgeOne(e.m, visit)
		state[id] = done
		return e.err
	}
	for _, id := range s.sortedIDs() {
		_ = visit(id) // kept in the entry
	}
}

// judgeOne looks at what m needs.
func (s *Store) judgeOne(m *Manifest, visit func(id string) error) error {
	for _, need := range slices.Sorted(maps.Keys(m.Needs())) {
		if err := visit(need); err != nil {
			return fmt.Errorf("store: %s needs %s: %w", m.ID, need, err)
		}
	}
	return judgeRefs(m, func(id string) *Manifest { return s.entries[id].m })
}

// judgeRefs checks that every layer that m names is what its owner has, and that a
// checkpoint is of the same machine as its parent. get returns the manifests that m needs.
func judgeRefs(m *Manifest, get func(id string) *Manifest) error {
	var err error
	m.EachRef(func(r Ref) {
		if err != nil || r.External != "" || r.Snapshot == m.ID {
			return
		}
		f, ok := get(r.Snapshot).File(r.File)
		switch {
		case !ok:
			err = fmt.Errorf("store: %s needs layer %s of %s: %w", m.ID, r.File, r.Snapshot, ErrParentMissing)
		case f.Size != r.Size || f.Digest != r.Digest || !f.Layer:
			err = fmt.Errorf("store: %s needs another layer %s of %s: %w", m.ID, r.File, r.Snapshot, ErrDamaged)
		}
	})
	if err != nil {
		return err
	}
	base := m
	if id := m.Memory[0].Snapshot; id != m.ID {
		base = get(id)
	}
	if base.Kind != Template || base.Machine != m.Machine {
		return fmt.Errorf("store: the base of %s is %s, a %s of %+v: %w", m.ID, base.ID, base.Kind, base.Machine, ErrDamaged)
	}
	if m.Parent == "" {
		return nil
	}
	if p := get(m.Parent); p.Machine != m.Machine || len(p.Disks) != len(m.Disks) {
		return fmt.Errorf("store: %s is of another machine than its parent %s: %w", m.ID, m.Parent, ErrDamaged)
	}
	return nil
}
