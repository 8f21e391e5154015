package launch

import (
	"context"
	"io"
	"maps"
	"strings"
	"time"

	"thaw/api"
	"thaw/broker/boot"
	"thaw/broker/catalogue"
	"thaw/broker/fleet"
	"thaw/snapshot/store"
)

// labelImage is the label that the fleet gives snapshots of an image.
const labelImage = "thaw.image"

// ownLabels begin those labels that the fleet keeps for itself.
var ownLabels = []string{"thaw.template", labelImage, "thaw.warm."}

// stored implements catalogue.Store. Names and labels of imported snapshots are
// hostile text.
type stored struct {
	store *store.Store
	fleet *fleet.Fleet // which has snapshots open
}

// List implements catalogue.Store.
func (s stored) List() []catalogue.Owned {
	list := s.store.List("")
	out := make([]catalogue.Owned, 0, len(list))
	for _, i := range list {
		if i.Manifest == nil { // nobody's: the store keeps it until an operator looks
			continue
		}
		out = append(out, owned(i))
	}
	return out
}

func owned(i *store.Info) catalogue.Owned {
	m := i.Manifest
	o := catalogue.Owned{Tenant: m.Tenant, Used: i.Used, Snapshot: api.Snapshot{
		ID: i.ID, Kind: api.KindCheckpoint, State: api.SnapshotDurable, Parent: m.Parent, Name: boot.Printable(m.Name), Labels: map[string]string{},
		Pinned: m.Pinned, Image: boot.Printable(m.Labels[labelImage]), MemoryMiB: int64(m.Machine.MemoryBytes >> 20), VCPUs: m.Machine.VCPUs,
		Created: m.Created, Bytes: i.Bytes, Depth: m.Record.Depth, Generation: m.Generation,
	}}
	if m.Kind == store.Template {
		o.Kind = api.KindTemplate
	}
	for k, v := range m.Labels {
		o.Labels[boot.Printable(k)] = boot.Printable(v)
	}
	maps.DeleteFunc(o.Labels, func(k, _ string) bool {
		for _, own := range ownLabels {
			if strings.HasPrefix(k, own) {
				return true
			}
		}
		return false
	})
	r := m.Record
	o.Record = &api.Record{
		Op: "checkpoint", Snapshot: i.ID, Parent: m.Parent, Generation: m.Generation,
		TotalMS: ms(r.Freeze + r.Pause + r.CopyAhead), FreezeMS: ms(r.Freeze), PauseMS: ms(r.Pause), CopyAheadMS: ms(r.CopyAhead),
		Phases: []api.Phase{{Name: "store", MS: ms(r.Store)}}, Tracker: boot.Printable(r.Tracker),
		Candidates: r.Candidates, Pages: r.Pages, ZeroPages: r.ZeroPages, SamePages: r.DuplicatePages, DiskBytes: r.DiskBytes, Bytes: i.Bytes, Depth: r.Depth,
		Consistent: instant(r.Consistent), Durable: instant(r.Durable),
	}
	if i.Err != nil {
		o.State, o.Error = api.SnapshotUnusable, api.AsError(snapshotError(i.Err, api.CodeSnapshotDamaged, "snapshot %s cannot be used", i.ID))
	}
	return o
}

// Delete implements catalogue.Store.
func (s stored) Delete(_ context.Context, id string, cascade bool) ([]string, error) {
	before := s.ids()
	if err := s.store.Delete(id, cascade); err != nil {
		return nil, snapshotError(err, api.CodeInternal, "snapshot %s could not be removed", id)
	}
	gone := []string{id}
	if cascade {
		// Others may have come or gone meanwhile: only descendants count.
		after := s.ids()
		for d, parent := range before {
			if _, left := after[d]; !left && d != id && descends(before, parent, id) {
				gone = append(gone, d)
			}
		}
	}
	return gone, nil
}

// ids has the parent of each snapshot.
func (s stored) ids() map[string]string {
	out := map[string]string{}
	for _, i := range s.store.List("") {
		if i.Manifest != nil {
			out[i.ID] = i.Manifest.Parent
		}
	}
	return out
}

// descends says whether id is, or comes from, an ancestor. parents may have cycles.
func descends(parents map[string]string, id, ancestor string) bool {
	for range len(parents) + 1 {
		if id == ancestor {
			return true
		}
		if id = parents[id]; id == "" {
			return false
		}
	}
	return false
}

// Merge implements catalogue.Store.
func (s stored) Merge(ctx context.Context, id string) error {
	if err := s.fleet.Merge(ctx, id); err != nil {
		return snapshotError(err, api.CodeInternal, "snapshot %s could not be merged", id)
	}
	return nil
}

// Export implements catalogue.Store.
func (s stored) Export(ctx context.Context, id string, w io.Writer) error {
	if err := s.store.Export(ctx, id, w); err != nil {
		return snapshotError(err, api.CodeInternal, "snapshot %s could not be exported", id)
	}
	return nil
}

// Import implements catalogue.Store.
func (s stored) Import(ctx context.Context, tenant string, r io.Reader) ([]string, error) {
	id, err := s.store.Import(ctx, r, store.ImportOptions{Tenant: tenant})
	if err != nil {
		return nil, snapshotError(err, api.CodeInternal, "the archive could not be imported")
	}
	return []string{id}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
