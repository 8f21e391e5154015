package store

import (
	"slices"

	"thaw/snapshot/manifest"
)

// withoutUnneeded is m's files without its own layers that neither it nor a child
// names, and no open chain may want. Preconditions: the caller holds the snapshot, so that no draft that does not
// have its manifest yet gets the old one.
func (s *Store) withoutUnneeded(m *Manifest) []File {
	named := map[string]bool{}
	note := func(r Ref) {
		if r.Snapshot == m.ID {
			named[r.File] = true
		}
	}
	m.EachRef(note)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[m.ID]; e != nil && e.reads > 0 {
		return m.Files
	}
	for child := range s.needed[m.ID] {
		if e := s.entries[child]; e != nil && e.m != nil {
			e.eachRef(note)
		}
	}
	for _, d := range s.drafts {
		if d.spec.Parent == m.ID {
			return m.Files // it may name any layer of the manifest that it found
		}
	}
	return slices.DeleteFunc(slices.Clone(m.Files), func(f File) bool { return f.Layer && !named[f.Name] })
}

// trimAll removes what a merge left for children, or for open chains, which are gone by
// now.
func (s *Store) trimAll() error {
	for _, i := range s.List("") {
		if i.Err != nil || len(i.Manifest.Merged) == 0 && !merged(i.Manifest) {
			continue
		}
		if err := s.trim(i.ID); err != nil {
			return err
		}
	}
	return nil
}

// merged says whether a merge changed the snapshot's layers.
func merged(m *Manifest) bool {
	return m.IndexFile() != manifest.IndexName || m.StateFile() != manifest.StateName
}

func (s *Store) trim(id string) error {
	release, m, err := s.hold(id)
	if err != nil {
		return nil // gone or busy: another time
	}
	defer release()
	next := *m
	if next.Files = s.withoutUnneeded(m); len(next.Files) < len(m.Files) {
		if _, err := s.replaceManifest(&next); err != nil {
			return err
		}
	}
	if s.isRead(id) {
		return nil
	}
	return s.sweepSnapshot(&next)
}

// isRead says whether somebody who has found an older manifest may still open its files.
func (s *Store) isRead(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[id]
	return e != nil && e.reads > 0
}
