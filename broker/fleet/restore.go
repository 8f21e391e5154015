package fleet

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"thaw/broker/fleet/tracker"
	"thaw/guestinit/agentclient"
	"thaw/vmm/vmmproc"
)

// RestoreSpec says what machine is wanted.
type RestoreSpec struct {
	MachineID string // in records; empty: made up
	Snapshot  string // template or checkpoint
	Hostname  string // empty: "thaw"
	Shell     Kind   // the best kind that is taken; empty: the best there is
	Job       string // what it is for: one job of this runtime's warm interpreter; empty: not known
	// Tracker finds the changed pages of its checkpoints; empty: the fleet's choice. One that
	// needs a machine made for it has no shell that waits.
	Tracker string
}

// Restore makes a machine of a snapshot. On return its guest has acknowledged a new
// generation, and all that ran in it when it was saved goes on. After an error nothing
// is left. Errors: those of package store; ErrNotAcknowledged; ErrClosed; dirty.ErrTracker.
func (f *Fleet) Restore(ctx context.Context, spec RestoreSpec) (*Machine, error) {
	c := startClock()
	if err := tracker.Check(spec.Tracker, tracker.NeedsRings(spec.Tracker)); err != nil {
		return nil, err
	}
	h, err := f.images.get(ctx, spec.Snapshot)
	if err != nil {
		return nil, err
	}
	c.done("image")
	return f.restore(ctx, spec, h, c)
}

// restore is Restore with an open image, which is the machine's from then on, also
// after an error.
func (f *Fleet) restore(ctx context.Context, spec RestoreSpec, h *held, c *clock) (_ *Machine, err error) {
	s, done, err := f.takeShell(ctx, h.image, spec.Shell, tracker.NeedsRings(spec.Tracker))
	if err != nil {
		h.release()
		return nil, err
	}
	defer done()
	defer func() {
		if err != nil {
			h.release()
			f.discard(s)
		}
	}()
	s.job = spec.Job
	c.done("shell")
	if spec.MachineID == "" {
		spec.MachineID = randomName("m-")
	}
	r := Record{Op: OpRestore, Machine: spec.MachineID, Snapshot: h.id, Class: h.class, Shell: s.kind, Overlays: len(h.overlays), Depth: h.depth}
	var client *agentclient.Client
	if s.image != nil && s.image.id == h.id {
		client, r.Generation, err = f.awaken(ctx, s, spec.Hostname, c)
	} else {
		var restored vmmproc.Restored
		restored, client, r.Generation, err = f.become(ctx, s, h.image, spec.Hostname, "restore", c)
		r.Private, r.Copied, r.PutBack, r.Dropped = restored.Private, restored.Copied, restored.PutBack, restored.Dropped
	}
	if err != nil {
		return nil, err
	}
	r.Ack = c.total()
	m := &Machine{
		id: spec.MachineID, fleet: f, shell: s, hostname: spec.Hostname, wanted: spec.Tracker, op: make(chan struct{}, 1),
		client: client, current: h, overlays: len(h.overlays),
	}
	f.note(&r, c)
	m.record = r
	if err := f.adopt(m); err != nil {
		client.Close()
		return nil, err
	}
	return m, nil
}

// adopt makes a machine one that Close destroys.
func (f *Fleet) adopt(m *Machine) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	f.machines[m] = true
	return nil
}

// Fork makes machines of one snapshot, several at a time. All of them are there on
// return, or, after an error, none. Snapshot of the specs is not looked at.
func (f *Fleet) Fork(ctx context.Context, snapshot string, specs []RestoreSpec) ([]*Machine, error) {
	first, err := f.images.get(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	defer first.release()
	machines := make([]*Machine, len(specs))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(forks())
	for i, spec := range specs {
		spec.Snapshot = snapshot
		g.Go(func() (err error) {
			machines[i], err = f.Restore(gctx, spec)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		errs := []error{fmt.Errorf("fleet: fork %s: %w", snapshot, err)}
		for _, m := range machines {
			if m != nil {
				errs = append(errs, m.Close(context.WithoutCancel(ctx)))
			}
		}
		return nil, errors.Join(errs...)
	}
	return machines, nil
}
