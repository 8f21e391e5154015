package store

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"thaw/snapshot/durable"
	"thaw/snapshot/manifest"
	"thaw/snapshot/openfiles"
	"thaw/snapshot/plan"
)

// Options of a store.
type Options struct {
	Root string // folder; made if it is missing
	// MaxBytes is the store's share of the disk; 0: all of it. Begin and Import
	// refuse with ErrNoSpace above it; GC makes room.
	MaxBytes int64
	// MinFree is how many bytes must stay free on the file system.
	MinFree int64
	// Folder knows disks. Without one their layers are never folded, and states are not
	// compared with them.
	Folder DiskFolder

	hook func(step) error // of tests
}

// Store is an open store. It is safe for several goroutines.
type Store struct {
	root string
	opts Options
	hook func(step) error
	lock *os.File
	// files are those of chains, by snapshot/name.
	files *openfiles.Cache

	mu       sync.Mutex
	entries  map[string]*entry          // protected by mu
	needed   map[string]map[string]bool // by id: who needs it; protected by mu
	drafts   map[string]*Draft          // being written; protected by mu
	editing  map[string]chan struct{}   // manifests being replaced; closed at the end; protected by mu
	verified map[string]bool            // files, by snapshot/name; protected by mu
	indexes  indexCache                 // protected by mu
	closed   bool                       // protected by mu
}

// Problem is a snapshot that cannot be used, and why. Its files stay until it is deleted.
type Problem struct {
	ID  string
	Err error
}

// Open opens the store and brings it to the state that a crash left: operations that
// had been decided are finished, others are undone, and their debris is removed.
// The error wraps ErrLocked while another process has it open.
func Open(o Options) (*Store, error) {
	s := &Store{
		root: o.Root, opts: o, hook: o.hook, entries: map[string]*entry{}, needed: map[string]map[string]bool{},
		files: openfiles.New(maxIdle, foldBytes), drafts: map[string]*Draft{}, editing: map[string]chan struct{}{}, verified: map[string]bool{},
	}
	for _, dir := range []string{s.root, s.snapshots(), s.work()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("store: make folder: %w", err)
		}
	}
	lock, err := durable.Lock(filepath.Join(s.root, "lock"))
	if err != nil {
		return nil, err
	}
	s.lock = lock
	if err := s.recover(); err != nil {
		lock.Close()
		return nil, err
	}
	return s, nil
}

// Close lets another process open the store. Leases and chains that are still held
// stay usable, drafts do not.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	s.files.Close()
	return s.lock.Close()
}

func (s *Store) snapshots() string { return filepath.Join(s.root, "snapshots") }
func (s *Store) work() string      { return filepath.Join(s.root, "work") }

func (s *Store) plans() plan.Folders {
	return plan.Folders{Work: s.work(), Into: s.snapshots(), At: func(name string) error { return s.at(step(name)) }}
}

// maxIdle is how many files that no chain uses stay open.
const maxIdle = 1024

// dir is the folder of a committed snapshot.
func (s *Store) dir(id string) string { return filepath.Join(s.snapshots(), id) }

// Get returns a snapshot's manifest. Errors: ErrNotFound, or why it cannot be used.
func (s *Store) Get(id string) (*Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.usable(id)
	if err != nil {
		return nil, err
	}
	return e.m, nil
}

// usable is the entry of a snapshot that can be used. Preconditions: mu is held.
func (s *Store) usable(id string) (*entry, error) {
	e := s.entries[id]
	if e == nil || e.doomed {
		return nil, fmt.Errorf("store: snapshot %.40q: %w", id, ErrNotFound)
	}
	if e.err != nil {
		return nil, fmt.Errorf("store: snapshot %s: %w", id, e.err)
	}
	return e, nil
}

// Problems lists the snapshots that cannot be used, by id.
func (s *Store) Problems() []Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Problem
	for _, id := range s.sortedIDs() {
		if e := s.entries[id]; e.err != nil {
			out = append(out, Problem{id, e.err})
		}
	}
	return out
}

// Annotate changes a snapshot's name, labels and pin: edit is given a copy to change.
// Other fields stay as they are.
func (s *Store) Annotate(id string, edit func(m *Manifest)) (*Manifest, error) {
	release, m, err := s.hold(id)
	if err != nil {
		return nil, err
	}
	defer release()
	draft := *m
	draft.Labels = map[string]string{}
	for k, v := range m.Labels {
		draft.Labels[k] = v
	}
	edit(&draft)
	next := *m
	next.Name, next.Labels, next.Pinned = draft.Name, draft.Labels, draft.Pinned
	if _, err := s.replaceManifest(&next); err != nil {
		return nil, err
	}
	return &next, nil
}

// touch notes that a snapshot was used, for GC. The time survives the daemon as the
// manifest's own; losing it in a crash does no harm. Preconditions: mu is held.
func (s *Store) touch(id string, e *entry) {
	now := time.Now()
	if now.Sub(e.used) < time.Minute {
		return
	}
	e.used = now
	_ = os.Chtimes(filepath.Join(s.dir(id), manifest.FileName), now, now)
}
