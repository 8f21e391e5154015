package broker

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"thaw/api"
)

// minPrefix is how many digits of an id are enough to mean it.
const minPrefix = 6

func printable(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// pendingSnapshot is a snapshot that was made and is not durable yet, or failed to be.
type pendingSnapshot struct {
	tenant string
	done   chan struct{} // closed when it is durable, or lost
	err    error         // why it is lost; set before done is closed

	mu       sync.Mutex
	snapshot api.Snapshot // protected by mu
}

func (p *pendingSnapshot) view() api.Snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.snapshot
}

// awaitDurable keeps a new snapshot in view until the store has it.
func (b *Broker) awaitDurable(s *sandbox, c Checkpoint, spec CheckpointSpec) *pendingSnapshot {
	r := c.Record()
	p := &pendingSnapshot{tenant: s.tenant, done: make(chan struct{}), snapshot: api.Snapshot{
		ID: c.ID(), Kind: api.KindCheckpoint, State: api.SnapshotConsistent, Parent: r.Parent, Name: spec.Name, Labels: spec.Labels, Image: s.image,
		MemoryMiB: s.class.MemoryMiB, VCPUs: s.class.VCPUs, Created: b.now(), Bytes: r.Bytes, Depth: r.Depth, Generation: s.machine.Record().Generation, Record: &r,
	}}
	b.mu.Lock()
	b.pending[c.ID()] = p
	b.mu.Unlock()
	b.running.Go(func() {
		err := c.Durable(context.Background())
		r := c.Record()
		p.mu.Lock()
		p.snapshot.Record, p.snapshot.Bytes, p.snapshot.State = &r, r.Bytes, api.SnapshotDurable
		if err != nil {
			p.snapshot.State, p.snapshot.Error = api.SnapshotUnusable, refuse(err)
		}
		p.mu.Unlock()
		p.err = err
		close(p.done)
		if err != nil {
			b.cfg.Log.Error("snapshot is lost", "snapshot", c.ID(), "sandbox", s.id, "error", err)
			return // stays in view until it is removed
		}
		b.mu.Lock()
		delete(b.pending, c.ID())
		b.mu.Unlock()
	})
	return p
}

// owned lists a tenant's snapshots and the daemon's templates, oldest first, with
// what needs each.
func (b *Broker) owned(tenant string) ([]OwnedSnapshot, error) {
	fleet, err := b.fleet()
	if err != nil {
		return nil, err
	}
	// Before the store is asked: what becomes durable meanwhile is then in both, never in none.
	b.mu.Lock()
	var all []OwnedSnapshot
	for _, p := range b.pending {
		if p.tenant == tenant {
			all = append(all, OwnedSnapshot{Tenant: tenant, Snapshot: p.view()})
		}
	}
	on := map[string][]string{}
	for _, s := range b.sandboxOrder {
		if s.tenant == tenant && !s.over() {
			s.mu.Lock()
			on[s.snapshot] = append(on[s.snapshot], s.id)
			s.mu.Unlock()
		}
	}
	b.mu.Unlock()
	seen := map[string]bool{}
	for _, have := range fleet.Snapshots().List() {
		if have.Tenant == tenant || have.Tenant == "" {
			seen[have.ID] = true
			all = append(all, have)
		}
	}
	known := map[string]bool{}
	all = slices.DeleteFunc(all, func(s OwnedSnapshot) bool {
		twice := known[s.ID] || seen[s.ID] && s.State == api.SnapshotConsistent
		known[s.ID] = known[s.ID] || !twice
		return twice
	})
	children := map[string]int{}
	for _, s := range all {
		children[s.Parent]++
	}
	for i := range all {
		all[i].Children, all[i].Sandboxes = children[all[i].ID], on[all[i].ID]
	}
	slices.SortFunc(all, func(a, b OwnedSnapshot) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return all, nil
}

// findSnapshot looks up what a tenant means by an id, the beginning of one, or a
// name. Snapshots of another are as unknown as none.
func (b *Broker) findSnapshot(tenant, ref string) (OwnedSnapshot, error) {
	all, err := b.owned(tenant)
	if err != nil {
		return OwnedSnapshot{}, err
	}
	var byPrefix []OwnedSnapshot
	var byName *OwnedSnapshot
	for i, s := range all {
		switch {
		case s.ID == ref:
			return s, nil
		case len(ref) >= minPrefix && strings.HasPrefix(s.ID, ref):
			byPrefix = append(byPrefix, s)
		case s.Name != "" && s.Name == ref && s.Tenant == tenant:
			byName = &all[i] // the newest
		}
	}
	switch {
	case byName != nil:
		return *byName, nil
	case len(byPrefix) == 1:
		return byPrefix[0], nil
	case len(byPrefix) > 1:
		return OwnedSnapshot{}, api.Errorf(api.CodeSnapshotAmbiguous, "%d snapshots begin with %q", len(byPrefix), ref).WithRemedy("give more digits of the id")
	}
	return OwnedSnapshot{}, api.Errorf(api.CodeSnapshotNotFound, "there is no snapshot %q", ref).WithRemedy("`thaw snapshot ls` lists your snapshots")
}

// usableSnapshot is findSnapshot for one that machines are to be made of.
func (b *Broker) usableSnapshot(tenant, ref string) (OwnedSnapshot, error) {
	s, err := b.findSnapshot(tenant, ref)
	if err == nil && s.State == api.SnapshotUnusable {
		return s, s.Error
	}
	return s, err
}

// ownSnapshot is findSnapshot for one that is to be changed: the daemon's templates
// are not a tenant's to change.
func (b *Broker) ownSnapshot(tenant, ref string) (OwnedSnapshot, error) {
	s, err := b.findSnapshot(tenant, ref)
	if err == nil && s.Tenant != tenant {
		return s, api.Errorf(api.CodeForbidden, "snapshot %s is a template, and the daemon's own", s.ID).
			WithRemedy("the daemon removes templates that it needs no more by itself")
	}
	return s, err
}

// snapshotQuota refuses more snapshots of a tenant that has its share.
func (b *Broker) snapshotQuota(tenant string) error {
	all, err := b.owned(tenant)
	if err != nil {
		return err
	}
	n, bytes := 0, int64(0)
	for _, s := range all {
		if s.Tenant == tenant {
			n++
			bytes += s.Bytes
		}
	}
	if n >= b.cfg.TenantSnapshots || bytes >= b.cfg.TenantSnapshotBytes {
		return api.Errorf(api.CodeQuotaExceeded, "you have %d snapshots with %d bytes, as many as you may", n, bytes).
			WithCause(fmt.Errorf("at most %d snapshots with %d bytes", b.cfg.TenantSnapshots, b.cfg.TenantSnapshotBytes)).
			WithRemedy("remove some: `thaw snapshot rm`, `thaw snapshot gc`")
	}
	return nil
}

// Snapshots lists a tenant's snapshots, newest first.
func (b *Broker) Snapshots(tenant string) ([]api.Snapshot, error) {
	all, err := b.owned(tenant)
	if err != nil {
		return nil, err
	}
	out := []api.Snapshot{}
	for _, s := range slices.Backward(all) {
		if s.Tenant == tenant {
			out = append(out, s.Snapshot)
		}
	}
	return out, nil
}

// Snapshot shows a snapshot.
func (b *Broker) Snapshot(tenant, ref string) (api.Snapshot, error) {
	s, err := b.findSnapshot(tenant, ref)
	return s.Snapshot, err
}

// SnapshotTree lists a tenant's snapshots and the templates below them as a tree.
func (b *Broker) SnapshotTree(tenant string) (api.SnapshotTree, error) {
	all, err := b.owned(tenant)
	if err != nil {
		return api.SnapshotTree{}, err
	}
	known, children := map[string]bool{}, map[string][]OwnedSnapshot{}
	for _, s := range all {
		known[s.ID] = true
	}
	for _, s := range all {
		parent := s.Parent
		if !known[parent] { // lost: shown as a root
			parent = ""
		}
		children[parent] = append(children[parent], s)
	}
	tree := api.SnapshotTree{Nodes: []api.SnapshotNode{}}
	shown := map[string]bool{}
	// A stack, not recursion: how deep a tree is, is a tenant's choice.
	type at struct {
		s     OwnedSnapshot
		level int
	}
	var stack []at
	push := func(of string, level int) {
		for _, s := range slices.Backward(children[of]) {
			if s.Tenant == tenant || s.Tenant == "" && len(children[s.ID])+len(s.Sandboxes) > 0 {
				stack = append(stack, at{s, level})
			}
		}
	}
	push("", 0)
	for len(stack) > 0 {
		top := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if shown[top.s.ID] { // hostile manifests may form a cycle
			continue
		}
		shown[top.s.ID] = true
		tree.Nodes = append(tree.Nodes, api.SnapshotNode{Level: top.level, Snapshot: top.s.Snapshot})
		push(top.s.ID, top.level+1)
	}
	return tree, nil
}

// ExportSnapshot looks up what Export then writes.
func (b *Broker) ExportSnapshot(tenant, ref string) (write func(ctx context.Context, w io.Writer) error, _ api.Snapshot, err error) {
	s, err := b.usableSnapshot(tenant, ref)
	if err != nil {
		return nil, api.Snapshot{}, err
	}
	if s.State != api.SnapshotDurable {
		return nil, api.Snapshot{}, api.Errorf(api.CodeConflict, "snapshot %s is not durable yet", s.ID).WithRemedy("try again in a moment")
	}
	return func(ctx context.Context, w io.Writer) error {
		if err := b.cfg.Fleet.Snapshots().Export(ctx, s.ID, w); err != nil {
			return refuse(err)
		}
		return nil
	}, s.Snapshot, nil
}
