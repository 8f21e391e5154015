package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"time"

	"thaw/broker/fleet/files"
	"thaw/broker/fleet/tracker"
	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/snapshot/layer"
	"thaw/snapshot/store"
	"thaw/vmm/vmmproc"
	"thaw/vmm/vmmproto"
)

// CheckpointSpec says what checkpoint is wanted.
type CheckpointSpec struct {
	Tenant    string
	Name      string
	Labels    map[string]string
	Tracker   string // empty: the machine's, or pagemap for the first, then one that follows the guest's writes
	CopyAhead *bool  // nil: when much has changed
}

// Checkpoint is a snapshot that is consistent: machines can be restored from it, in
// this daemon's life. It is durable a little later.
type Checkpoint struct {
	ID     string
	Record Record

	durable chan struct{} // closed when stored or err is set
	stored  *store.Manifest
	err     error
}

// Durable waits until the checkpoint is in the store, and survives a crash. The error
// says why it never will be: then it cannot be restored any more either.
func (c *Checkpoint) Durable(ctx context.Context) (*store.Manifest, error) {
	select {
	case <-c.durable:
		return c.stored, c.err
	case <-ctx.Done():
		return nil, fmt.Errorf("fleet: wait for checkpoint %s to be durable: %w", c.ID, context.Cause(ctx))
	}
}

// Checkpoint saves the machine, which goes on. Its processes stand still meanwhile,
// the machine itself for a part of that. A second checkpoint waits for the first to be
// consistent. Errors: dirty.ErrTracker; ErrNotFrozen; those of Begin of package store;
// after another error the machine is destroyed.
func (m *Machine) Checkpoint(ctx context.Context, spec CheckpointSpec) (*Checkpoint, error) {
	if err := m.begin(ctx); err != nil {
		return nil, err
	}
	defer m.end()
	return m.checkpoint(ctx, spec)
}

// checkpoint is Checkpoint within an operation.
func (m *Machine) checkpoint(ctx context.Context, spec CheckpointSpec) (*Checkpoint, error) {
	spec.Tracker = cmp.Or(spec.Tracker, m.wanted)
	if err := tracker.Check(spec.Tracker, m.shell.rings); err != nil {
		return nil, fmt.Errorf("fleet: checkpoint of machine %s: %w", m.id, err)
	}
	s := &saving{m: m, f: m.fleet, spec: spec, clock: startClock()}
	defer s.close()
	m.mu.Lock()
	s.parent, s.client, s.paused, s.frozen = m.current, m.client, m.paused, m.frozen
	m.mu.Unlock()
	if err := s.prepare(); err != nil {
		return nil, err
	}
	// From here on a caller who gives up must not leave the machine half-way.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), operationTime, errLate)
	defer cancel()
	if err := s.freeze(ctx); err != nil {
		return nil, err
	}
	if err := s.save(ctx); err != nil {
		return nil, m.fail(err)
	}
	c, err := s.finish(ctx)
	if err != nil {
		return nil, m.fail(err)
	}
	return c, nil
}

// operationTime bounds what is done to a machine that stands still.
const operationTime = time.Minute

// saving is the state of one checkpoint.
type saving struct {
	m      *Machine
	f      *Fleet
	spec   CheckpointSpec
	clock  *clock
	parent *held
	client *agentclient.Client
	paused bool // the machine was
	frozen bool // and its processes too

	draft              *store.Draft // nil once it is someone else's
	state, memory, top *os.File     // nil once they are someone else's
	freezing           time.Duration
	saved              vmmproc.Saved
}

func (s *saving) close() {
	if s.draft != nil {
		s.draft.Abort()
	}
	for _, f := range []*os.File{s.state, s.memory, s.top} {
		if f != nil {
			f.Close()
		}
	}
}

// prepare makes all that is needed, before anything stands still.
func (s *saving) prepare() (err error) {
	im := s.parent.image
	for _, d := range im.disks {
		// The new layer, and the top of a machine that is restored.
		if !d.readOnly && len(d.layers)+2 > vmmproto.MaxLayers {
			return fmt.Errorf("fleet: checkpoint of machine %s at depth %d: %w", s.m.id, im.depth, ErrTooDeep)
		}
	}
	labels := map[string]string{}
	maps.Copy(labels, s.spec.Labels) // the fleet's own win
	labels[labelImage] = im.imageName
	for runtime, id := range im.warm {
		labels[labelWarm+runtime] = fmt.Sprint(id)
	}
	print, err := s.f.fingerprint(labels[labelImage])
	if err != nil {
		return err
	}
	memory := uint64(im.class.MemoryMiB) * mib
	s.draft, err = s.f.cfg.Store.Begin(store.Spec{
		Kind: store.Checkpoint, Parent: im.id, Tenant: s.spec.Tenant, Name: s.spec.Name, Labels: labels,
		Generation: s.m.generation(), Machine: store.Machine{VCPUs: im.class.VCPUs, MemoryBytes: memory}, Fingerprint: print,
	})
	if err != nil {
		return err
	}
	if s.state, err = layer.NewMemfd("thaw-state", stateSize); err != nil {
		return err
	}
	if s.memory, err = layer.NewMemfd("thaw-overlay", int64(memory)); err != nil {
		return err
	}
	s.top, err = s.f.tops.Take(im.diskSize)
	s.clock.done("prepare")
	return err
}

// freeze makes the guest's processes stand still. A paused machine runs for that.
func (s *saving) freeze(ctx context.Context) error {
	if s.frozen {
		return nil
	}
	if s.paused {
		if err := s.m.shell.proc.Resume(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.f.cfg.FreezeTimeout+time.Second, errLate)
	defer cancel()
	res, err := s.client.Freeze(ctx, agentproto.FreezeRequest{Wait: s.f.cfg.FreezeTimeout})
	s.clock.done("freeze")
	if err == nil {
		s.freezing = res.Took
		return nil
	}
	err = fmt.Errorf("fleet: machine %s: %w: %w", s.m.id, ErrNotFrozen, err)
	if ctx.Err() != nil {
		return s.m.fail(err) // it is not known whether they stand still
	}
	if s.paused {
		if perr := s.m.shell.proc.Pause(ctx); perr != nil {
			return s.m.fail(fmt.Errorf("%w (%w)", err, perr))
		}
	}
	return err
}

// copyAheadAbove is from how many bytes of a machine's own on they are copied before the
// pause although the VMM follows the guest's writes: it then has to begin anew, and each
// page that the guest writes again costs a fault. The first save begins anyway.
const copyAheadAbove = 64 * mib

// trackers returns by what the save finds the pages, and what is started for the next:
// one that follows writes is of use only then.
func (s *saving) trackers() (find, next string) {
	if want := s.spec.Tracker; want == "" || want == s.m.tracker || want == "pagemap" || want == "full" {
		return want, ""
	}
	return "", s.spec.Tracker
}

// save has the VMM write what changed, and lets the guest go on.
func (s *saving) save(ctx context.Context) (err error) {
	ahead := !s.m.tracked || files.PrivateBytes(s.m.shell.proc.PID()) > copyAheadAbove
	if s.spec.CopyAhead != nil {
		ahead = *s.spec.CopyAhead
	}
	find, next := s.trackers()
	// The file of pages, which may be as large as the memory, is charged to its writer.
	if err = s.m.allow(s.parent.class.MemoryMiB); err != nil {
		return err
	}
	s.saved, err = s.m.shell.proc.Save(ctx, vmmproc.SaveSpec{
		State: s.state, Memory: s.memory, Tops: []*os.File{s.top}, Tracker: find, Next: next, CopyAhead: ahead, Resume: !s.paused,
	})
	if err != nil {
		s.m.tracker, s.m.tracked = "", false
		return fmt.Errorf("fleet: save machine %s: %w", s.m.id, err)
	}
	s.m.tracker, s.m.tracked = cmp.Or(next, find), next != "" || find != "pagemap" && find != "full"
	s.clock.done("save", s.saved.Phases...)
	if s.paused {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		s.m.frozen = true
		return nil
	}
	if err := s.client.Thaw(ctx); err != nil {
		return fmt.Errorf("fleet: thaw machine %s: %w", s.m.id, err)
	}
	s.clock.done("thaw")
	return nil
}

// finish makes the new image of what the VMM has written, and makes it the machine's.
func (s *saving) finish(ctx context.Context) (*Checkpoint, error) {
	im := s.parent.child(s.draft.ID)
	overlay, err := s.fill(im)
	if err != nil {
		im.close()
		return nil, err
	}
	defer overlay.release()
	h, err := s.f.images.put(im)
	if err != nil {
		im.close()
		return nil, err
	}
	s.clock.done("index")
	err = s.m.advance(h, func() {
		s.m.overlays++
		s.m.savedMiB += int64(s.saved.Pages)*pageSize/mib + 1
		s.m.shell.setTop(s.top)
		s.top = nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.m.allow(0); err != nil {
		return nil, err
	}
	if err := s.m.rebase(ctx, h); err != nil {
		return nil, err
	}
	c := &Checkpoint{ID: im.id, Record: s.record(im), durable: make(chan struct{})}
	s.f.note(&c.Record, s.clock)
	return c, s.store(c, im, overlay)
}

// fill gives the new image its files, and returns that of the pages it adds.
func (s *saving) fill(im *image) (overlay *shared, err error) {
	pages := uint32(im.class.MemoryMiB * mib / pageSize)
	if s.saved.StateBytes <= 0 || s.saved.StateBytes > stateSize || s.saved.Pages < 0 || s.saved.Pages > int(pages) {
		return nil, fmt.Errorf("fleet: vmm of machine %s has saved %d bytes and %d pages", s.m.id, s.saved.StateBytes, s.saved.Pages)
	}
	if err := files.Cut(s.state, s.saved.StateBytes); err != nil {
		return nil, err
	}
	delta, err := files.Delta(s.state, pages, pages)
	if err != nil {
		return nil, err
	}
	// A page may have been copied ahead, and then become what it was: its copy is in
	// the file still.
	var stored uint32
	for _, r := range delta.Runs {
		if r.Dense() {
			stored = max(stored, r.At+r.Count)
		}
	}
	if err := files.Cut(s.memory, int64(stored)*pageSize); err != nil {
		return nil, err
	}
	im.state, s.state = share(s.state), nil
	if stored > 0 {
		overlay, s.memory = share(s.memory), nil
		defer func() {
			if err != nil {
				overlay.release()
			}
		}()
	}
	if err := im.add(delta, overlay); err != nil {
		return nil, err
	}
	for i := range im.disks {
		if im.disks[i].readOnly {
			continue
		}
		frozen, err := s.m.shell.freezeTop()
		if err != nil {
			return nil, err
		}
		im.disks[i].layers = append(im.disks[i].layers, share(frozen))
	}
	// What a machine of the parent writes first, one of this writes too.
	im.hot = s.f.images.hotOf(s.parent.image)
	im.plan, err = planFile(im.memory, im.data, im.hot)
	return overlay, err
}

// record describes the checkpoint.
func (s *saving) record(im *image) Record {
	r := Record{
		Op: OpCheckpoint, Machine: s.m.id, Snapshot: im.id, Parent: im.parent, Class: im.class, Generation: s.m.generation(), Depth: im.depth,
		Tracker: s.saved.Tracker, CopyAhead: s.saved.CopyAhead > 0, Overlays: len(im.overlays),
		Candidates: s.saved.Candidates, Same: s.saved.Same, Pages: s.saved.Pages, ZeroPages: s.saved.Zero,
		Freeze: ms(s.freezing), Pause: ms(s.saved.Pause),
	}
	return r
}

// store writes the checkpoint into the store, behind the caller's back. The parent is
// committed before: Commit waits for that.
func (s *saving) store(c *Checkpoint, im *image, overlay *shared) error {
	h, err := s.f.images.again(im)
	if err != nil {
		return err
	}
	draft := s.draft
	s.draft = nil
	content := s.content(im, overlay.use())
	s.f.spawn(func() {
		// Not the fleet's context: what is consistent is to become durable, also when
		// the fleet is closed meanwhile.
		c.stored, c.err = draft.Commit(context.Background(), content)
		if c.err != nil {
			s.f.cfg.Log.Error("checkpoint is not durable", "snapshot", c.ID, "error", c.err)
		} else if overlay != nil {
			s.f.images.cache(c.stored.Memory[len(c.stored.Memory)-1].Digest, overlay.File)
		}
		s.f.images.settle(im, c.err)
		h.release()
		overlay.release()
		close(c.durable)
	})
	return nil
}

// content is what is written into the store.
func (s *saving) content(im *image, overlay *shared) store.Content {
	disks := make([]store.DiskContent, 0, len(im.disks))
	for _, d := range im.disks {
		out := store.DiskContent{ID: d.id, ReadOnly: d.readOnly, Size: d.size}
		if !d.readOnly {
			out.Layer = d.layers[len(d.layers)-1].File
		}
		disks = append(disks, out)
	}
	var memory *os.File
	if overlay != nil {
		memory = overlay.File
	}
	return store.Content{
		State: im.state.File, StateBytes: s.saved.StateBytes, Memory: memory, Disks: disks,
		Record: store.Record{
			Tracker: s.saved.Tracker, Candidates: int64(s.saved.Candidates), Pages: int64(s.saved.Pages), ZeroPages: int64(s.saved.Zero),
			DuplicatePages: int64(s.saved.Same), Freeze: s.freezing, Pause: s.saved.Pause, CopyAhead: s.saved.CopyAhead,
			Consistent: time.Now().UTC(),
		},
	}
}
