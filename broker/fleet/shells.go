package fleet

import (
	"context"
	"sync"

	"thaw/broker/fleet/pool"
)

// newPool starts the pool of the fleet's shells.
func (f *Fleet) newPool() *pool.Pool[*shell] {
	return pool.New(f.ctx, pool.Config[*shell]{
		Want: map[Kind]int{Generic: f.cfg.Pool.Generic, Bound: f.cfg.Pool.Bound, Rehearsed: f.cfg.Pool.Rehearsed},
		Idle: f.cfg.Pool.Idle, Make: f.makeShell, Alive: (*shell).alive, Discard: f.discard, Log: f.cfg.Log,
	})
}

// makeShell makes a shell that waits in the pool.
func (f *Fleet) makeShell(ctx context.Context, k pool.Key) (*shell, error) {
	switch k.Kind {
	case Rehearsed:
		return f.rehearse(ctx, k.Template)
	case Bound:
		c := startClock()
		s, err := f.bind(ctx, k.Template, c)
		if err == nil {
			f.note(&Record{Op: OpBind, Machine: s.berth.ID, Snapshot: k.Template, Class: s.class}, c)
		}
		return s, err
	default:
		return f.newShell(ctx, k.Class, f.cfg.DiskBytes, false)
	}
}

// takeShell returns a shell for an image: of what is ready the best, of the kind best at
// most if that is not "", else a new one; with dirty rings always that. done: the keeper
// of the pool may use the CPUs again.
func (f *Fleet) takeShell(ctx context.Context, im *image, best Kind, rings bool) (s *shell, done func(), err error) {
	done, ok := f.pool.Begin(im.class, im.template)
	if !ok {
		return nil, nil, ErrClosed
	}
	if ok = false; !rings {
		s, ok = f.pool.Take(im.class, im.template, best)
	}
	if !ok {
		if s, err = f.newShell(ctx, im.class, im.diskSize, rings); err != nil {
			done()
			return nil, nil, err
		}
	}
	return s, done, nil
}

// discard destroys a shell off the caller's path.
func (f *Fleet) discard(s *shell) {
	f.spawn(func() { _ = s.destroy(context.Background(), f) }) // it is logged
}

// closePool destroys all shells that wait. Preconditions: the fleet's context has ended.
func (f *Fleet) closePool() {
	var closing sync.WaitGroup
	for _, s := range f.pool.Close() {
		closing.Go(func() { _ = s.destroy(context.Background(), f) }) // it is logged
	}
	closing.Wait()
}

// Shells counts the shells that wait, generic ones first, in a fixed order.
func (f *Fleet) Shells() []pool.Count { return f.pool.Counts() }
