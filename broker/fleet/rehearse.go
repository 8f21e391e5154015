package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"

	"thaw/broker/fleet/files"
	"thaw/broker/fleet/play"
	"thaw/broker/fleet/pool"
	"thaw/snapshot/layer"
	"thaw/snapshot/store"
)

// bind makes a shell over which a template is laid, and which has not run.
func (f *Fleet) bind(ctx context.Context, template string, c *clock) (_ *shell, err error) {
	h, err := f.images.get(ctx, template)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("fleet: bind shell: %w: %w", pool.ErrGone, err)
	}
	if err != nil {
		return nil, err
	}
	s, err := f.newShell(ctx, h.class, h.diskSize, false)
	if err != nil {
		h.release()
		return nil, err
	}
	s.image = h
	c.done("shell")
	restored, err := s.become(ctx, f, h.image, nil)
	if err != nil {
		f.discard(s)
		return nil, err
	}
	c.done("restore", restored.Phases...)
	return s, nil
}

// rehearse makes a shell that is bound to a template, lets it run, and rolls it back, once
// for each thing that a job may start with: it is the template again, byte for byte, with
// hot page tables. Nothing of what it did is left in the guest, which will know no
// generation but the one of its use.
func (f *Fleet) rehearse(ctx context.Context, template string) (_ *shell, err error) {
	c := startClock()
	s, err := f.bind(ctx, template, c)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.discard(s)
		}
	}()
	h := s.image
	r := Record{Op: OpRehearse, Machine: s.berth.ID, Snapshot: template, Class: h.class}
	env, err := f.cfg.Assets.Env(h.imageName)
	if err != nil {
		return nil, err
	}
	f.recordJobs(ctx, h.image)
	c.done("record jobs")
	for _, part := range play.Parts(h.warm, env) {
		if err := f.practise(ctx, s, h.image, part, &r, c); err != nil {
			return nil, err
		}
	}
	s.kind = Rehearsed
	f.note(&r, c)
	return s, nil
}

// practise lets the shell do one part of the rehearsal, and rolls it back.
func (f *Fleet) practise(ctx context.Context, s *shell, im *image, p play.Part, r *Record, c *clock) error {
	client, generation, err := f.awaken(ctx, s, "", c)
	if err != nil {
		return err
	}
	defer client.Close()
	r.Generation = generation
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.ReadyTimeout, errLate)
	defer cancel()
	if err := p.Play(ctx, client); err != nil {
		return fmt.Errorf("fleet: rehearse %s: %w", p.Name, err)
	}
	c.done(p.Name)
	return f.rollBackRehearsal(ctx, s, im, r, c)
}

// rollBackRehearsal makes the shell the template again. The first time that is done
// with a template, the pages that were written are recorded: other shells get them ready
// ahead, and those that were bound before are bound anew.
func (f *Fleet) rollBackRehearsal(ctx context.Context, s *shell, im *image, r *Record, c *clock) error {
	var record *os.File
	if f.images.hotOf(im) == nil {
		var err error
		if record, err = layer.NewMemfd("thaw-record", 0); err != nil {
			return err
		}
		defer record.Close()
	}
	plan := f.images.planOf(im, "")
	defer plan.release()
	restored, err := s.proc.Rollback(ctx, im.handOver(plan, s.topFile()), record)
	if err != nil {
		return err
	}
	c.done("roll back", restored.Phases...)
	r.Private, r.Copied, r.PutBack, r.Dropped = restored.Private, restored.Copied, restored.PutBack, restored.Dropped
	if record == nil {
		return nil
	}
	hot, err := files.Recording(record, im.memory.Pages)
	if err != nil {
		return err
	}
	if err := f.images.setHot(im, hot, ""); err != nil {
		return err
	}
	f.pool.Renew(pool.Key{Kind: Bound, Class: im.class, Template: im.id})
	return nil
}

// recordJobs finds out which pages a job of each warm interpreter writes, if that is not
// known yet: shells get them ready ahead. Without, jobs are only slower.
func (f *Fleet) recordJobs(ctx context.Context, im *image) {
	for runtime, id := range im.warm {
		if !f.images.claimJob(im, runtime) {
			continue
		}
		if err := f.recordJob(ctx, im, runtime, id); err != nil && ctx.Err() == nil {
			f.cfg.Log.Warn("pages that jobs write are not known", "template", im.id, "runtime", runtime, "error", err)
			f.images.unclaimJob(im, runtime)
		}
	}
}

// recordJob runs the least job in a machine of its own, which has no use after it: a job
// leaves much to be put back.
func (f *Fleet) recordJob(ctx context.Context, im *image, runtime string, id uint64) error {
	env, err := f.cfg.Assets.Env(im.imageName)
	if err != nil {
		return err
	}
	s, err := f.newShell(ctx, im.class, im.diskSize, false)
	if err != nil {
		return err
	}
	defer f.discard(s)
	plan := f.images.planOf(im, "")
	defer plan.release()
	if _, err := s.proc.Restore(ctx, im.handOver(plan, s.topFile())); err != nil {
		return err
	}
	client, _, err := f.awaken(ctx, s, "", startClock())
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.ReadyTimeout, errLate)
	defer cancel()
	if err := play.LeastJob(ctx, client, runtime, id, env); err != nil {
		return err
	}
	record, err := layer.NewMemfd("thaw-record", 0)
	if err != nil {
		return err
	}
	defer record.Close()
	if _, err := s.proc.Rollback(ctx, im.handOver(plan, s.topFile()), record); err != nil {
		return err
	}
	written, err := files.Recording(record, im.memory.Pages)
	if err != nil {
		return err
	}
	return f.images.setHot(im, written, runtime)
}
