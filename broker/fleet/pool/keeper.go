package pool

import (
	"context"
	"errors"
	"time"
)

// keep makes what is lacking until ctx ends.
func (p *Pool[S]) keep(ctx context.Context) {
	defer close(p.done)
	for {
		timer := time.NewTimer(p.fill(ctx))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// longWait is for a keeper that has nothing to do until it is poked.
const longWait = time.Hour

// fill makes shells until none is lacking, or it is not the time, and returns when to
// look again.
func (p *Pool[S]) fill(ctx context.Context) time.Duration {
	for ctx.Err() == nil {
		k, wait := p.next()
		if wait > 0 {
			return wait
		}
		if err := p.add(ctx, k); err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("a shell could not be made ready", "kind", k.Kind, "class", k.Class, "template", k.Template, "error", err)
		}
	}
	return longWait
}

// next decides what to make, or how long to wait if that is not 0: of what is lacking the
// first in order.
func (p *Pool[S]) next() (next Key, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait = longWait
	if p.busy > 0 {
		return next, wait // done wakes the keeper
	}
	now := time.Now()
	found := false
	for k, list := range p.ready {
		if len(list) >= p.cfg.Want[k.Kind] {
			continue
		}
		left := afterFailure - now.Sub(p.failed[k])
		if k.Kind == Rehearsed {
			left = max(left, p.cfg.Idle-now.Sub(p.asked))
		}
		switch {
		case left > 0:
			wait = min(wait, left)
		case !found || compare(k, next) < 0:
			next, found = k, true
		}
	}
	if found {
		return next, 0
	}
	return next, wait
}

// add makes one shell, and remembers when that failed.
func (p *Pool[S]) add(ctx context.Context, k Key) error {
	s, err := p.cfg.Make(ctx, k)
	if errors.Is(err, ErrGone) { // a template that was deleted is in use no more
		p.Drop(k.Template)
		return nil
	}
	p.mu.Lock()
	if err != nil {
		p.failed[k] = time.Now()
	} else {
		delete(p.failed, k)
	}
	p.mu.Unlock()
	if err == nil {
		p.put(k, s)
	}
	return err
}
