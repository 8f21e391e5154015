package broker

import (
	"context"
	"io"
	"slices"

	"thaw/api"
)

// RemoveSnapshot deletes a snapshot, and with cascade all that need it, unless
// sandboxes do.
func (b *Broker) RemoveSnapshot(ctx context.Context, tenant, ref string, cascade bool) (api.Removed, error) {
	s, err := b.ownSnapshot(tenant, ref)
	if err != nil {
		return api.Removed{}, err
	}
	b.mu.Lock()
	p := b.pending[s.ID]
	b.mu.Unlock()
	if p != nil {
		select {
		case <-p.done:
		case <-ctx.Done():
			return api.Removed{}, context.Cause(ctx)
		}
		if p.err != nil { // there is nothing but the memory of it
			b.mu.Lock()
			delete(b.pending, s.ID)
			b.mu.Unlock()
			return api.Removed{Snapshots: []string{s.ID}}, nil
		}
	}
	sizes := b.sizes(tenant)
	removed, err := b.cfg.Fleet.Snapshots().Delete(ctx, s.ID, cascade)
	if err != nil {
		return api.Removed{}, refuse(err)
	}
	return tally(removed, sizes), nil
}

func (b *Broker) sizes(tenant string) map[string]int64 {
	all, _ := b.owned(tenant) // without a fleet there is nothing
	sizes := map[string]int64{}
	for _, s := range all {
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

// MergeSnapshot makes a checkpoint independent of the checkpoints below it.
func (b *Broker) MergeSnapshot(ctx context.Context, tenant, ref string) (api.Snapshot, error) {
	s, err := b.ownSnapshot(tenant, ref)
	if err != nil {
		return api.Snapshot{}, err
	}
	if err := b.snapshotQuota(tenant); err != nil {
		return api.Snapshot{}, err
	}
	if err := b.cfg.Fleet.Snapshots().Merge(ctx, s.ID); err != nil {
		return api.Snapshot{}, refuse(err)
	}
	return b.Snapshot(tenant, s.ID)
}

// ImportSnapshots takes an archive in.
func (b *Broker) ImportSnapshots(ctx context.Context, tenant string, r io.Reader) (api.SnapshotList, error) {
	if err := b.snapshotQuota(tenant); err != nil {
		return api.SnapshotList{}, err
	}
	ids, err := b.cfg.Fleet.Snapshots().Import(ctx, tenant, r)
	if err != nil {
		return api.SnapshotList{}, refuse(err)
	}
	l := api.SnapshotList{Snapshots: []api.Snapshot{}}
	for _, id := range ids {
		s, err := b.Snapshot(tenant, id)
		if err != nil {
			return api.SnapshotList{}, err
		}
		l.Snapshots = append(l.Snapshots, s)
	}
	return l, nil
}

// CollectSnapshots removes the least recently used of a tenant's checkpoints that
// nothing needs, until the rest is within a bound.
func (b *Broker) CollectSnapshots(ctx context.Context, tenant string, r api.CollectRequest) (api.Removed, error) {
	all, err := b.owned(tenant)
	if err != nil {
		return api.Removed{}, err
	}
	setDefault(&r.KeepBytes, b.cfg.TenantSnapshotBytes)
	order, sizes := collectable(tenant, all, r.KeepBytes)
	if r.DryRun {
		return tally(order, sizes), nil
	}
	var gone []string
	for _, id := range order {
		removed, err := b.cfg.Fleet.Snapshots().Delete(ctx, id, false)
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
func collectable(tenant string, all []OwnedSnapshot, keep int64) (order []string, sizes map[string]int64) {
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
