package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"thaw/snapshot/durable"
	"thaw/snapshot/manifest"
)

// recover finishes what had been decided, removes what had not, and reads the
// catalogue. A snapshot that cannot be read is kept, with its error.
func (s *Store) recover() error {
	if err := s.plans().Finish(); err != nil {
		return err
	}
	if err := s.sweepWork(); err != nil {
		return err
	}
	list, err := os.ReadDir(s.snapshots())
	if err != nil {
		return fmt.Errorf("store: list snapshots: %w", err)
	}
	for _, d := range list {
		if !manifest.ValidID(d.Name()) {
			continue // not ours
		}
		s.add(d.Name(), s.load(d.Name()))
	}
	s.judge()
	return nil
}

// sweepWork removes what was being written or removed when the store was last open.
func (s *Store) sweepWork() error {
	list, err := os.ReadDir(s.work())
	if err != nil {
		return fmt.Errorf("store: list work: %w", err)
	}
	for _, d := range list {
		if err := os.RemoveAll(filepath.Join(s.work(), d.Name())); err != nil {
			return fmt.Errorf("store: remove debris: %w", err)
		}
	}
	return nil
}

// load reads one snapshot's manifest and looks at its files.
func (s *Store) load(id string) *entry {
	dir := s.dir(id)
	e := &entry{bytes: durable.FolderUse(dir)}
	path := filepath.Join(dir, manifest.FileName)
	b, err := durable.ReadBounded(path, manifest.MaxSize)
	if err != nil {
		e.err = err
		return e
	}
	m, err := manifest.Decode(b)
	if err == nil && m.ID != id {
		err = fmt.Errorf("store: folder %s has the manifest of %s: %w", id, m.ID, ErrDamaged)
	}
	if err != nil {
		e.err = err
		return e
	}
	e.m = m
	if info, err := os.Lstat(path); err == nil {
		e.used = info.ModTime()
	}
	if e.err = s.checkFiles(m); e.err == nil {
		e.err = s.sweepSnapshot(m)
	}
	return e
}

// checkFiles looks whether a snapshot's files are there and of the right size. Their
// bytes are verified when they are first used.
func (s *Store) checkFiles(m *Manifest) error {
	for _, f := range m.Files {
		info, err := os.Lstat(filepath.Join(s.dir(m.ID), f.Name))
		switch {
		case errors.Is(err, os.ErrNotExist):
			return fmt.Errorf("store: file %s is missing: %w", f.Name, ErrDamaged)
		case err != nil:
			return fmt.Errorf("store: look at %s: %w", f.Name, err)
		case !info.Mode().IsRegular() || info.Size() != f.Size:
			return fmt.Errorf("store: file %s is %v of %d bytes, not %d: %w", f.Name, info.Mode().Type(), info.Size(), f.Size, ErrDamaged)
		}
	}
	return nil
}

// sweepSnapshot removes files that the manifest does not name: those of a merge
// that was not finished, or not needed after one.
func (s *Store) sweepSnapshot(m *Manifest) error {
	dir := s.dir(m.ID)
	list, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("store: list files: %w", err)
	}
	for _, d := range list {
		if d.Name() == manifest.FileName {
			continue
		}
		if f, ok := m.File(strings.TrimSuffix(d.Name(), manifest.SumSuffix)); ok && (f.Layer || f.Name == d.Name()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, d.Name())); err != nil {
			return fmt.Errorf("store: remove debris: %w", err)
		}
	}
	return nil
}
