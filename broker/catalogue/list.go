package catalogue

import (
	"context"
	"io"
	"slices"

	"thaw/api"
)

// List lists the tenant's snapshots, newest first.
func (v View) List() []api.Snapshot {
	out := []api.Snapshot{}
	for _, s := range slices.Backward(v.owned()) {
		if s.Tenant == v.tenant {
			out = append(out, s.Snapshot)
		}
	}
	return out
}

// Show shows a snapshot.
func (v View) Show(ref string) (api.Snapshot, error) {
	s, err := v.find(ref)
	return s.Snapshot, err
}

// Tree lists the tenant's snapshots and the templates below them as a tree.
func (v View) Tree() api.SnapshotTree {
	all := v.owned()
	known, children := map[string]bool{}, map[string][]Owned{}
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
		s     Owned
		level int
	}
	var stack []at
	push := func(of string, level int) {
		for _, s := range slices.Backward(children[of]) {
			if s.Tenant == v.tenant || s.Tenant == "" && len(children[s.ID])+len(s.Sandboxes) > 0 {
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
	return tree
}

// Export looks up what write then writes.
func (v View) Export(ref string) (write func(ctx context.Context, w io.Writer) error, _ api.Snapshot, err error) {
	s, err := v.Usable(ref)
	if err != nil {
		return nil, api.Snapshot{}, err
	}
	if s.State != api.SnapshotDurable {
		return nil, api.Snapshot{}, api.Errorf(api.CodeConflict, "snapshot %s is not durable yet", s.ID).WithRemedy("try again in a moment")
	}
	return func(ctx context.Context, w io.Writer) error { return v.c.opts.Store.Export(ctx, s.ID, w) }, s.Snapshot, nil
}
