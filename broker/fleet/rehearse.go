package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
	"thaw/snapshot/store"
)

// errNoTemplate says that a template is gone.
var errNoTemplate = errors.New("template is gone")

// maxRecord bounds a recording of pages, in bytes.
const maxRecord = 1 << 20

// rehearse makes a shell that is bound to a template, lets it run once, and rolls it
// back, once for each thing that a job may start with: it is the template again, byte for byte, with hot page tables. Nothing of what
// it did is left in the guest, which will know no generation but the one of its use.
func (f *Fleet) rehearse(ctx context.Context, template string) (_ *shell, err error) {
	h, err := f.images.get(ctx, template)
	if errors.Is(err, store.ErrNotFound) {
		return nil, fmt.Errorf("fleet: rehearse: %w: %w", errNoTemplate, err)
	}
	if err != nil {
		return nil, err
	}
	c := startClock()
	s, err := f.newShell(ctx, h.class, h.diskSize)
	if err != nil {
		h.release()
		return nil, err
	}
	s.image = h
	defer func() {
		if err != nil {
			f.discard(s)
		}
	}()
	c.done("shell")
	restored, err := s.become(ctx, f, h.image)
	if err != nil {
		return nil, err
	}
	c.done("restore", restored.Phases...)
	r := Record{Op: OpRehearse, Machine: s.berth.ID, Snapshot: template, Class: h.class}
	env, err := f.cfg.Assets.Env(h.imageName)
	if err != nil {
		return nil, err
	}
	for _, part := range partsOf(h.image, env) {
		if err := f.practise(ctx, s, h.image, part, &r, c); err != nil {
			return nil, err
		}
	}
	s.kind = Rehearsed
	f.note(&r, c)
	return s, nil
}

// practise lets the shell do one part of the rehearsal, and rolls it back.
func (f *Fleet) practise(ctx context.Context, s *shell, im *image, p part, r *Record, c *clock) error {
	client, generation, err := f.awaken(ctx, s, "", c)
	if err != nil {
		return err
	}
	defer client.Close()
	r.Generation = generation
	ctx, cancel := context.WithTimeoutCause(ctx, f.cfg.ReadyTimeout, errLate)
	defer cancel()
	if err := p.play(ctx, client); err != nil {
		return fmt.Errorf("fleet: rehearse %s: %w", p.name, err)
	}
	c.done(p.name)
	return f.rollBackRehearsal(ctx, s, im, r, c)
}

// rollBackRehearsal makes the shell the template again. The first time that is done
// with a template, the pages that were written are recorded: generic shells get them
// ready ahead.
func (f *Fleet) rollBackRehearsal(ctx context.Context, s *shell, im *image, r *Record, c *clock) error {
	var record *os.File
	if f.images.hotOf(im) == nil {
		var err error
		if record, err = layer.NewMemfd("thaw-record", 0); err != nil {
			return err
		}
		defer record.Close()
	}
	plan := f.images.planOf(im)
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
	hot, err := readRecord(record, im.memory.Pages)
	if err != nil {
		return err
	}
	return f.images.setHot(im, hot)
}

// readRecord reads a recording that a VMM has written.
func readRecord(f *os.File, pages uint32) (*pageindex.Index, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, maxRecord))
	if err != nil {
		return nil, fmt.Errorf("fleet: read recording: %w", err)
	}
	x, err := pageindex.Decode(b, pages)
	if err != nil {
		return nil, fmt.Errorf("fleet: read recording: %w", err)
	}
	return x, nil
}
