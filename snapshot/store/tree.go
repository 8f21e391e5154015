package store

import (
	"slices"
	"time"
)

// Info is what a listing says of a snapshot.
type Info struct {
	ID       string
	Manifest *Manifest // nil if it cannot be read
	Err      error     // why it cannot be used, or nil
	Leases   int
	Bytes    int64 // on disk
	Used     time.Time
	Children []*Info // in a tree only, oldest first
}

// List returns the snapshots of a tenant, oldest first; tenant "" lists all, and
// those that cannot be read.
func (s *Store) List(tenant string) []*Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*Info
	for _, id := range s.sortedIDs() {
		e := s.entries[id]
		if tenant == "" || e.m != nil && e.m.Tenant == tenant {
			out = append(out, &Info{ID: id, Manifest: e.m, Err: e.err, Leases: e.leases, Bytes: e.bytes, Used: e.used})
		}
	}
	slices.SortStableFunc(out, func(a, b *Info) int { return a.created().Compare(b.created()) })
	return out
}

func (i *Info) created() time.Time {
	if i.Manifest == nil {
		return time.Time{}
	}
	return i.Manifest.Created
}

// Tree returns the snapshots of List by descent: those whose parent is not in the
// list are roots. Snapshots that are each other's parents are roots too.
func (s *Store) Tree(tenant string) []*Info {
	list := s.List(tenant)
	byID := map[string]*Info{}
	for _, i := range list {
		byID[i.ID] = i
	}
	var roots []*Info
	for _, i := range list {
		var parent *Info
		if i.Manifest != nil && i.Err == nil {
			parent = byID[i.Manifest.Parent]
		}
		if parent == nil {
			roots = append(roots, i)
			continue
		}
		parent.Children = append(parent.Children, i)
	}
	return roots
}
