package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"thaw/snapshot/durable"
	"thaw/snapshot/manifest"
)

// newManifest is a manifest that is about to take the old one's place.
const newManifest = ".manifest.new"

// replaceManifest makes next the manifest of its snapshot, by one rename. After an error
// decided says whether it may have happened. Preconditions: the caller holds the snapshot
// (hold), and files that next names are in its folder and synced.
func (s *Store) replaceManifest(next *Manifest) (decided bool, err error) {
	b, err := next.Encode()
	if err != nil {
		return false, err
	}
	dir := s.dir(next.ID)
	path := filepath.Join(dir, newManifest)
	defer func() {
		if !decided {
			os.Remove(path)
		}
	}()
	if err := os.RemoveAll(path); err != nil {
		return false, fmt.Errorf("store: remove debris: %w", err)
	}
	if err := durable.WriteFile(path, b); err != nil {
		return false, err
	}
	if err := s.at(stepMergeNew); err != nil {
		return false, err
	}
	if err := os.Rename(path, filepath.Join(dir, manifest.FileName)); err != nil {
		return false, fmt.Errorf("store: replace manifest: %w", err)
	}
	if err := s.at(stepMergeMade); err != nil {
		return true, err
	}
	if err := durable.SyncDir(dir); err != nil {
		return true, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.entries[next.ID]; old != nil {
		e := *old
		if e.reads > 0 {
			e.former = append(slices.Clone(e.former), old.m)
		}
		e.m, e.bytes = next, durable.FolderUse(dir)
		s.add(next.ID, &e)
	}
	return true, nil
}
