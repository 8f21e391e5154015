package store

import (
	"fmt"
	"os"
	"path/filepath"

	"thaw/snapshot/durable"
	"thaw/snapshot/manifest"
)

// newManifest is a manifest that is about to take the old one's place.
const newManifest = ".manifest.new"

// replaceManifest makes next the manifest of its snapshot, by one rename.
// Preconditions: the caller holds the snapshot (hold), and files that next names are
// in its folder and synced.
func (s *Store) replaceManifest(next *Manifest) error {
	b, err := next.Encode()
	if err != nil {
		return err
	}
	dir := s.dir(next.ID)
	path := filepath.Join(dir, newManifest)
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("store: remove debris: %w", err)
	}
	if err := durable.WriteFile(path, b); err != nil {
		return err
	}
	if err := durable.SyncDir(dir); err != nil {
		return err
	}
	if err := s.at(stepMergeNew); err != nil {
		return err
	}
	if err := os.Rename(path, filepath.Join(dir, manifest.FileName)); err != nil {
		return fmt.Errorf("store: replace manifest: %w", err)
	}
	if err := s.at(stepMergeMade); err != nil {
		return err
	}
	if err := durable.SyncDir(dir); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.entries[next.ID]; old != nil {
		e := *old
		e.m, e.bytes = next, durable.FolderUse(dir)
		s.add(next.ID, &e)
	}
	return nil
}
