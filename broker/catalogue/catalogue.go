// Package catalogue is what a tenant sees of the snapshots in the store, and of those
// that are on their way into it: found by id, by the beginning of one, or by name,
// within a quota, and as a tree.
//
// A View is of one tenant and finds its snapshots and the daemon's own templates.
// Whatever belongs to another is not there.
package catalogue

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"thaw/api"
)

// Store keeps all tenants' snapshots. Its errors are *api.Error where the code says
// more than internal.
type Store interface {
	// List has every snapshot that is durable, and those that cannot be used.
	List() []Owned
	// Delete removes a snapshot, and with cascade all that need it.
	Delete(ctx context.Context, id string, cascade bool) (removed []string, err error)
	// Merge makes a checkpoint independent of the checkpoints below it.
	Merge(ctx context.Context, id string) error
	// Export writes an archive of a snapshot and of all that it needs.
	Export(ctx context.Context, id string, w io.Writer) error
	// Import takes an archive in; what it brings is the tenant's.
	Import(ctx context.Context, tenant string, r io.Reader) (ids []string, err error)
}

// Owned is a snapshot and whose it is. Children and Sandboxes are the catalogue's to
// fill in.
type Owned struct {
	Tenant string // empty: the daemon's own
	Used   time.Time
	api.Snapshot
}

// Made is a new snapshot: consistent at once, durable later.
type Made interface {
	ID() string
	Record() api.Record
	// Durable waits until the snapshot would survive a crash. After an error there is no
	// such snapshot.
	Durable(ctx context.Context) error
}

// Options say what a catalogue is of.
type Options struct {
	Store        Store
	MaxSnapshots int   // of a tenant
	MaxBytes     int64 // of them on disk: no more are made above it
	// Sandboxes has the ids of a tenant's sandboxes by the snapshot that they continue.
	Sandboxes func(tenant string) map[string][]string
	// Go starts a goroutine that somebody waits for.
	Go  func(func())
	Log *slog.Logger
}

// Catalogue is safe for several goroutines.
type Catalogue struct {
	opts Options

	mu      sync.Mutex
	pending map[string]*Pending // protected by mu; by id: not durable yet, or lost
}

// New makes a catalogue.
func New(o Options) *Catalogue { return &Catalogue{opts: o, pending: map[string]*Pending{}} }

// Of is a tenant's view.
func (c *Catalogue) Of(tenant string) View { return View{c, tenant} }

// View is what one tenant sees and may do.
type View struct {
	c      *Catalogue
	tenant string
}

// Pending is a snapshot that was made and is not durable yet, or failed to be.
type Pending struct {
	tenant string
	done   chan struct{} // closed when it is durable, or lost
	err    error         // why it is lost; set before done is closed

	mu       sync.Mutex
	snapshot api.Snapshot // protected by mu
}

// Snapshot is what is known of it now.
func (p *Pending) Snapshot() api.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot
}

// Wait returns when it is durable. The error says why it never will be, or is ctx's.
func (p *Pending) Wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Add keeps a new snapshot of the tenant's in view until the store has it. s has what
// is not in its record.
func (v View) Add(m Made, s api.Snapshot) *Pending {
	c := v.c
	r := m.Record()
	s.ID, s.Kind, s.State, s.Parent, s.Record = m.ID(), api.KindCheckpoint, api.SnapshotConsistent, r.Parent, &r
	s.Bytes, s.Depth = r.Bytes, r.Depth
	p := &Pending{tenant: v.tenant, done: make(chan struct{}), snapshot: s}
	c.mu.Lock()
	c.pending[s.ID] = p
	c.mu.Unlock()
	c.opts.Go(func() {
		err := m.Durable(context.Background())
		r := m.Record()
		p.mu.Lock()
		p.snapshot.Record, p.snapshot.Bytes, p.snapshot.State = &r, r.Bytes, api.SnapshotDurable
		if err != nil {
			p.snapshot.State, p.snapshot.Error = api.SnapshotUnusable, api.AsError(err)
		}
		p.mu.Unlock()
		p.err = err
		close(p.done)
		if err != nil {
			c.opts.Log.Error("snapshot is lost", "snapshot", m.ID(), "tenant", v.tenant, "error", err)
			return // stays in view until it is removed
		}
		c.forget(m.ID())
	})
	return p
}

// pendingOf is what a snapshot that is not durable is in view by, or nil.
func (c *Catalogue) pendingOf(id string) *Pending {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[id]
}

func (c *Catalogue) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// Room refuses more snapshots of a tenant that has its share.
func (v View) Room() error {
	n, bytes := 0, int64(0)
	for _, s := range v.owned() {
		if s.Tenant == v.tenant {
			n++
			bytes += s.Bytes
		}
	}
	if n >= v.c.opts.MaxSnapshots || bytes >= v.c.opts.MaxBytes {
		return api.Errorf(api.CodeQuotaExceeded, "you have %d snapshots with %d bytes, as many as you may", n, bytes).
			WithCause(fmt.Errorf("at most %d snapshots with %d bytes", v.c.opts.MaxSnapshots, v.c.opts.MaxBytes)).
			WithRemedy("remove some: `thaw snapshot rm`, `thaw snapshot gc`")
	}
	return nil
}
