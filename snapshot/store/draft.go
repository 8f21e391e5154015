package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"thaw/snapshot/durable"
	"thaw/snapshot/manifest"
	"thaw/snapshot/pageindex"
	"thaw/snapshot/plan"
)

// Spec says what a snapshot is going to be.
type Spec struct {
	Kind        Kind
	Parent      string // of a checkpoint; may be a draft that is not committed yet
	Tenant      string
	Name        string
	Labels      map[string]string
	Generation  uint64
	Machine     Machine
	Fingerprint Fingerprint
}

// Draft is a snapshot that is being made. Its id is known at once, so that a machine
// can run on, and be checkpointed again, while the bytes are written.
//
//	Begin ──▶ open ──Commit──▶ committed
//	            └───Abort or an error of Commit──▶ gone
type Draft struct {
	ID string

	store  *Store
	spec   Spec
	made   time.Time
	dir    string
	parent *Draft        // that is not committed yet, or nil
	done   chan struct{} // closed when it is committed or gone
	files  []*os.File    // written, not synced
	index  *pageindex.Index
}

// Begin starts a snapshot. Errors: ErrInvalid; ErrParentMissing if there is no such
// parent; ErrNoSpace.
func (s *Store) Begin(spec Spec) (*Draft, error) {
	if (spec.Kind == Checkpoint) != (spec.Parent != "") || spec.Kind != Checkpoint && spec.Kind != Template {
		return nil, fmt.Errorf("store: begin a %q of parent %q: %w", spec.Kind, spec.Parent, ErrInvalid)
	}
	if err := s.room(0); err != nil {
		return nil, err
	}
	d := &Draft{ID: manifest.NewID(), store: s, spec: spec, made: time.Now().UTC(), done: make(chan struct{})}
	d.dir = filepath.Join(s.work(), d.ID)
	if err := s.register(d); err != nil {
		return nil, err
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		d.Abort()
		return nil, fmt.Errorf("store: make folder: %w", durable.Full(err))
	}
	if err := s.at(stepBegun); err != nil {
		d.Abort()
		return nil, err
	}
	return d, nil
}

// register makes the draft known, and finds its parent.
func (s *Store) register(d *Draft) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("store: begin: %w", os.ErrClosed)
	}
	if p := d.spec.Parent; p != "" {
		if d.parent = s.drafts[p]; d.parent == nil {
			if _, err := s.usable(p); errors.Is(err, ErrNotFound) {
				return fmt.Errorf("store: begin checkpoint of %.40q: %w", p, ErrParentMissing)
			} else if err != nil {
				return err
			}
		}
	}
	s.drafts[d.ID] = d
	return nil
}

// Abort gives the draft up and removes what was written. After Commit it does nothing.
func (d *Draft) Abort() {
	if d.end() {
		os.RemoveAll(d.dir) // what stays is debris for the next Open
	}
}

// end makes the draft unknown, once, and says whether this call did.
func (d *Draft) end() bool {
	d.store.mu.Lock()
	defer d.store.mu.Unlock()
	if d.store.drafts[d.ID] != d {
		return false
	}
	delete(d.store.drafts, d.ID)
	for _, f := range d.files {
		f.Close()
	}
	d.files = nil
	close(d.done)
	return true
}

// Commit writes the snapshot and makes it durable. It waits for the parent's commit.
// After an error nothing is left of the draft. Errors: ErrInvalid if the content is
// not such a snapshot; ErrDamaged, ErrNoSpace, ErrParentMissing; those of packages
// format and pageindex for what the VMM wrote; those of files.
//
// Preconditions: the content's files do not change while they are read. A VMM that
// breaks that harms its own snapshot only: digests are of what was written here.
func (d *Draft) Commit(ctx context.Context, c Content) (*Manifest, error) {
	defer d.Abort()
	start := time.Now()
	parent, release, err := d.holdParent(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	m, err := d.write(ctx, c, parent)
	if err != nil {
		return nil, err
	}
	m.Record.Store = time.Since(start)
	if err := d.publish(m); err != nil {
		return nil, err
	}
	return m, nil
}

// holdParent waits for the parent and keeps it from being deleted. A template has none.
func (d *Draft) holdParent(ctx context.Context) (*Manifest, func(), error) {
	if d.spec.Parent == "" {
		return nil, func() {}, nil
	}
	if d.parent != nil {
		select {
		case <-d.parent.done:
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("store: wait for parent %s: %w", d.spec.Parent, ctx.Err())
		}
	}
	lease, err := d.store.settled(ctx, d.spec.Parent)
	if errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("store: commit checkpoint of %s: %w", d.spec.Parent, ErrParentMissing)
	}
	if err != nil {
		return nil, nil, err
	}
	return lease.Manifest, lease.Release, nil
}

// publish writes the manifest and renames the folder into place.
func (d *Draft) publish(m *Manifest) error {
	s := d.store
	m.Record.Bytes = durable.FolderUse(d.dir)
	m.Record.Durable = time.Now().UTC()
	b, err := m.Encode()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(filepath.Join(d.dir, manifest.FileName), b); err != nil {
		return err
	}
	if err := s.at(stepManifest); err != nil {
		return err
	}
	if err := durable.SyncDir(d.dir); err != nil {
		return err
	}
	if err := s.at(stepSynced); err != nil {
		return err
	}
	if err := os.Rename(d.dir, s.dir(m.ID)); err != nil {
		return fmt.Errorf("store: publish snapshot: %w", err)
	}
	if err := s.at(stepCommitted); err != nil {
		return s.unpublish(m.ID, err)
	}
	if err := durable.SyncDir(s.snapshots()); err != nil {
		return s.unpublish(m.ID, err)
	}
	if err := s.at(stepDurable); err != nil {
		return s.unpublish(m.ID, err)
	}
	s.mu.Lock()
	s.add(m.ID, &entry{m: m, used: time.Now(), bytes: m.Record.Bytes})
	s.indexes.put(m.ID+"/"+m.IndexFile(), d.index)
	s.mu.Unlock()
	d.end()
	return nil
}

// unpublish takes a snapshot back that cannot be made durable: its caller is told
// that there is none.
func (s *Store) unpublish(id string, why error) error {
	gone := filepath.Join(s.work(), plan.Gone+id)
	if err := os.Rename(s.dir(id), gone); err != nil {
		return errors.Join(why, fmt.Errorf("store: take snapshot back: %w", err))
	}
	return errors.Join(why, os.RemoveAll(gone))
}
