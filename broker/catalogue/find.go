package catalogue

import (
	"cmp"
	"slices"
	"strings"

	"thaw/api"
)

// minPrefix is how many digits of an id are enough to mean it.
const minPrefix = 6

// owned lists the tenant's snapshots and the daemon's templates, oldest first, with
// what needs each.
func (v View) owned() []Owned {
	// Before the store is asked: what becomes durable meanwhile is then in both, never in none.
	v.c.mu.Lock()
	var all []Owned
	for _, p := range v.c.pending {
		if p.tenant == v.tenant {
			all = append(all, Owned{Tenant: v.tenant, Snapshot: p.Snapshot()})
		}
	}
	v.c.mu.Unlock()
	on := v.c.opts.Sandboxes(v.tenant)
	seen := map[string]bool{}
	for _, have := range v.c.opts.Store.List() {
		if have.Tenant == v.tenant || have.Tenant == "" {
			seen[have.ID] = true
			all = append(all, have)
		}
	}
	known := map[string]bool{}
	all = slices.DeleteFunc(all, func(s Owned) bool {
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
	slices.SortFunc(all, func(a, b Owned) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return all
}

// find looks up what a tenant means by an id, the beginning of one, or a
// name. Snapshots of another are as unknown as none.
func (v View) find(ref string) (Owned, error) {
	all := v.owned()
	var byPrefix []Owned
	var byName *Owned
	for i, s := range all {
		switch {
		case s.ID == ref:
			return s, nil
		case len(ref) >= minPrefix && strings.HasPrefix(s.ID, ref):
			byPrefix = append(byPrefix, s)
		case s.Name != "" && s.Name == ref && s.Tenant == v.tenant:
			byName = &all[i] // the newest
		}
	}
	switch {
	case byName != nil:
		return *byName, nil
	case len(byPrefix) == 1:
		return byPrefix[0], nil
	case len(byPrefix) > 1:
		return Owned{}, api.Errorf(api.CodeSnapshotAmbiguous, "%d snapshots begin with %q", len(byPrefix), ref).WithRemedy("give more digits of the id")
	}
	return Owned{}, api.Errorf(api.CodeSnapshotNotFound, "there is no snapshot %q", ref).WithRemedy("`thaw snapshot ls` lists your snapshots")
}

// Usable is find for one that machines are to be made of.
func (v View) Usable(ref string) (Owned, error) {
	s, err := v.find(ref)
	if err == nil && s.State == api.SnapshotUnusable {
		return s, s.Error
	}
	return s, err
}

// own is find for one that is to be changed: the daemon's templates
// are not a tenant's to change.
func (v View) own(ref string) (Owned, error) {
	s, err := v.find(ref)
	if err == nil && s.Tenant != v.tenant {
		return s, api.Errorf(api.CodeForbidden, "snapshot %s is a template, and the daemon's own", s.ID).
			WithRemedy("the daemon removes templates that it needs no more by itself")
	}
	return s, err
}
