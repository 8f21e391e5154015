package catalogue

import (
	"context"
	"io"
	"slices"

	"thaw/api"
)

// Remove deletes a snapshot, and with cascade all that need it, unless
// sandboxes do.
func (v View) Remove(ctx context.Context, ref string, cascade bool) (api.Removed, error) {
	s, err := v.own(ref)
	if err != nil {
		return api.Removed{}, err
	}
	if p := v.c.pendingOf(s.ID); p != nil {
		select {
		case <-p.done:
		case <-ctx.Done():
			return api.Removed{}, context.Cause(ctx)
		}
		if p.err != nil { // there is nothing but the memory of it
			v.c.forget(s.ID)
			return api.Removed{Snapshots: []string{s.ID}}, nil
		}
	}
	sizes := v.sizes()
	removed, err := v.c.opts.Store.Delete(ctx, s.ID, cascade)
	if err != nil {
		return api.Removed{}, err
	}
	return tally(removed, sizes), nil
}

func (v View) sizes() map[string]int64 {
	sizes := map[string]int64{}
	for _, s := range v.owned() {
		sizes[s.ID] = s.Bytes
	}
	return sizes
}

func tally(ids []string, sizes map[string]int64) api.Removed {
	r := api.Removed{Snapshots: append([]string{}, ids...)}
	for _, id := range ids {
		r.Bytes += sizes[id]
	}
	return r
}

// Merge makes a checkpoint independent of the checkpoints below it. One that is not durable
// yet is waited for.
func (v View) Merge(ctx context.Context, ref string) (api.Snapshot, error) {
	s, err := v.own(ref)
	if err != nil {
		return api.Snapshot{}, err
	}
	if err := v.Room(); err != nil {
		return api.Snapshot{}, err
	}
	if p := v.c.pendingOf(s.ID); p != nil {
		if err := p.Wait(ctx); err != nil {
			return api.Snapshot{}, err
		}
	}
	if err := v.c.opts.Store.Merge(ctx, s.ID); err != nil {
		return api.Snapshot{}, err
	}
	return v.Show(s.ID)
}

// Import takes an archive in.
func (v View) Import(ctx context.Context, r io.Reader) (api.SnapshotList, error) {
	if err := v.Room(); err != nil {
		return api.SnapshotList{}, err
	}
	ids, err := v.c.opts.Store.Import(ctx, v.tenant, r)
	if err != nil {
		return api.SnapshotList{}, err
	}
	l := api.SnapshotList{Snapshots: []api.Snapshot{}}
	for _, id := range ids {
		s, err := v.Show(id)
		if err != nil {
			return api.SnapshotList{}, err
		}
		l.Snapshots = append(l.Snapshots, s)
	}
	return l, nil
}

// Collect removes the least recently used of the tenant's checkpoints that
// nothing needs, until the rest is within a bound.
func (v View) Collect(ctx context.Context, r api.CollectRequest) (api.Removed, error) {
	keep := v.c.opts.MaxBytes
	if r.KeepBytes != nil {
		keep = *r.KeepBytes
	}
	order, sizes := collectable(v.tenant, v.owned(), keep)
	if r.DryRun {
		return tally(order, sizes), nil
	}
	var gone []string
	for _, id := range order {
		removed, err := v.c.opts.Store.Delete(ctx, id, false)
		gone = append(gone, removed...)
		if err != nil && ctx.Err() != nil {
			return tally(gone, sizes), context.Cause(ctx)
		}
		// One that came into use meanwhile stays.
	}
	return tally(gone, sizes), nil
}

// collectable is what has to go so that no more than keep bytes are left: leaves
// first, those used longest ago before others.
func collectable(tenant string, all []Owned, keep int64) (order []string, sizes map[string]int64) {
	sizes = map[string]int64{}
	children := map[string]int{}
	var total int64
	for _, s := range all {
		children[s.Parent]++
		if s.Tenant == tenant {
			sizes[s.ID] = s.Bytes
			total += s.Bytes
		}
	}
	left := slices.Clone(all)
	for total > keep {
		oldest := -1
		for i, s := range left {
			free := s.Tenant == tenant && s.State == api.SnapshotDurable && !s.Pinned && children[s.ID] == 0 && len(s.Sandboxes) == 0
			if free && (oldest < 0 || s.Used.Before(left[oldest].Used)) {
				oldest = i
			}
		}
		if oldest < 0 {
			break
		}
		s := left[oldest]
		left = slices.Delete(left, oldest, oldest+1)
		children[s.Parent]--
		order, total = append(order, s.ID), total-s.Bytes
	}
	return order, sizes
}
