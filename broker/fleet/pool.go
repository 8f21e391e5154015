package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// pool keeps shells ready. One goroutine, the keeper, makes them one at a time, and none
// while a machine is being restored, which would wait for it: generic ones as soon as
// that is over, rehearsed ones when nobody has asked for a machine for a while.
type pool struct {
	f    *Fleet
	wake chan struct{}
	done chan struct{} // the keeper is gone

	mu        sync.Mutex
	closed    bool                 // protected by mu
	generic   map[Class][]*shell   // protected by mu; a class that is in use has an entry
	rehearsed map[string][]*shell  // protected by mu; by template; one that is in use has an entry
	failed    map[string]time.Time // protected by mu; templates whose rehearsal failed last
	asked     time.Time            // protected by mu; when a machine was last asked for
	busy      int                  // protected by mu; restores under way
}

// afterFailure is how long a class or template is left alone after a shell of it
// could not be made.
const afterFailure = 10 * time.Second

func newPool(f *Fleet) *pool {
	p := &pool{
		f: f, wake: make(chan struct{}, 1), done: make(chan struct{}),
		generic: map[Class][]*shell{}, rehearsed: map[string][]*shell{}, failed: map[string]time.Time{},
	}
	go p.keep()
	return p
}

// poke tells the keeper to look again.
func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// use notes that shells of a class, and of a template if it is not "", are wanted.
func (p *pool) use(c Class, template string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(c, template)
	p.poke()
}

// note is use with mu held.
func (p *pool) note(c Class, template string) {
	if _, ok := p.generic[c]; !ok {
		p.generic[c] = nil
	}
	if _, ok := p.rehearsed[template]; !ok && template != "" {
		p.rehearsed[template] = nil
	}
}

// take returns a shell for an image: a rehearsed one of its template if there is one, and
// kind is not Generic, else a generic one; with dirty rings, a new one. done: the keeper
// may use the CPUs again.
func (p *pool) take(ctx context.Context, im *image, kind Kind, rings bool) (s *shell, done func(), err error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, nil, ErrClosed
	}
	p.note(im.class, im.template)
	p.busy++
	p.asked = time.Now()
	var dead []*shell
	if kind != Generic && !rings {
		s = pop(p.rehearsed, im.template, &dead)
	}
	if s == nil && !rings {
		s = pop(p.generic, im.class, &dead)
	}
	p.mu.Unlock()
	for _, d := range dead {
		p.f.discard(d)
	}
	done = sync.OnceFunc(func() {
		p.mu.Lock()
		p.busy--
		p.asked = time.Now()
		p.mu.Unlock()
		p.poke()
	})
	if s == nil {
		if s, err = p.f.newShell(ctx, im.class, im.diskSize, rings); err != nil {
			done()
			return nil, nil, err
		}
	}
	return s, done, nil
}

// pop takes the newest shell that is alive.
func pop[K comparable](from map[K][]*shell, key K, dead *[]*shell) *shell {
	for {
		list := from[key]
		if len(list) == 0 {
			return nil
		}
		s := list[len(list)-1]
		list[len(list)-1] = nil
		from[key] = list[:len(list)-1]
		if s.alive() {
			return s
		}
		*dead = append(*dead, s)
	}
}

// keep makes what is lacking until the fleet is closed.
func (p *pool) keep() {
	defer close(p.done)
	for {
		wait := p.fill()
		timer := time.NewTimer(wait)
		select {
		case <-p.f.ctx.Done():
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
func (p *pool) fill() time.Duration {
	for p.f.ctx.Err() == nil {
		job, wait := p.next()
		if job == nil {
			return wait
		}
		if err := job(); err != nil && p.f.ctx.Err() == nil {
			p.f.cfg.Log.Warn("a shell could not be made ready", "error", err)
		}
	}
	return longWait
}

// next decides what to make, or how long to wait.
func (p *pool) next() (job func() error, wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy > 0 {
		return nil, longWait // done wakes the keeper
	}
	now := time.Now()
	wait = longWait
	ready := func(key string) bool {
		left := afterFailure - now.Sub(p.failed[key])
		if left > 0 {
			wait = min(wait, left)
		}
		return left <= 0
	}
	for c, list := range p.generic {
		if len(list) < p.f.cfg.Pool.Generic && ready(c.String()) {
			return func() error { return p.failing(c.String(), p.addGeneric(c)) }, 0
		}
	}
	for template, list := range p.rehearsed {
		if len(list) >= p.f.cfg.Pool.Rehearsed || !ready(template) {
			continue
		}
		if idle := p.f.cfg.Pool.Idle - now.Sub(p.asked); idle > 0 {
			wait = min(wait, idle)
			continue
		}
		return func() error { return p.failing(template, p.addRehearsed(template)) }, 0
	}
	return nil, wait
}

// failing remembers a failure.
func (p *pool) failing(key string, err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.failed[key] = time.Now()
	} else {
		delete(p.failed, key)
	}
	return err
}

func (p *pool) addGeneric(c Class) error {
	s, err := p.f.newShell(p.f.ctx, c, p.f.cfg.DiskBytes, false)
	if err != nil {
		return err
	}
	put(p, p.generic, c, s)
	return nil
}

func (p *pool) addRehearsed(template string) error {
	s, err := p.f.rehearse(p.f.ctx, template)
	if err != nil {
		// A template that was deleted is in use no more.
		if errors.Is(err, errNoTemplate) {
			p.drop(template)
			return nil
		}
		return err
	}
	put(p, p.rehearsed, template, s)
	return nil
}

// put adds a shell that is ready, unless the pool is closed or has forgotten its key.
func put[K comparable](p *pool, to map[K][]*shell, key K, s *shell) {
	p.mu.Lock()
	list, wanted := to[key]
	if wanted = wanted && !p.closed; wanted {
		to[key] = append(list, s)
	}
	p.mu.Unlock()
	if !wanted {
		p.f.discard(s)
	}
}

// drop forgets a template, and destroys its shells.
func (p *pool) drop(template string) {
	p.mu.Lock()
	list := p.rehearsed[template]
	delete(p.rehearsed, template)
	p.mu.Unlock()
	for _, s := range list {
		p.f.discard(s)
	}
}

// close destroys all shells. Preconditions: the fleet's context has ended.
func (p *pool) close() {
	<-p.done
	p.mu.Lock()
	p.closed = true
	var all []*shell
	for _, list := range p.generic {
		all = append(all, list...)
	}
	for _, list := range p.rehearsed {
		all = append(all, list...)
	}
	clear(p.generic)
	clear(p.rehearsed)
	p.mu.Unlock()
	var closing sync.WaitGroup
	for _, s := range all {
		closing.Go(func() { _ = s.destroy(context.Background(), p.f) }) // it is logged
	}
	closing.Wait()
}

// discard destroys a shell off the caller's path.
func (f *Fleet) discard(s *shell) {
	f.spawn(func() { _ = s.destroy(context.Background(), f) }) // it is logged
}

// ShellCount counts the shells of a kind that wait.
type ShellCount struct {
	Kind     Kind
	Class    Class  // of generic ones
	Template string // of rehearsed ones
	Ready    int
	Wanted   int
}

// Shells counts the shells that wait, generic ones first, in a fixed order.
func (f *Fleet) Shells() []ShellCount {
	p := f.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []ShellCount
	for c, ready := range p.generic {
		list = append(list, ShellCount{Kind: Generic, Class: c, Ready: len(ready), Wanted: f.cfg.Pool.Generic})
	}
	for template, ready := range p.rehearsed {
		list = append(list, ShellCount{Kind: Rehearsed, Template: template, Ready: len(ready), Wanted: f.cfg.Pool.Rehearsed})
	}
	slices.SortFunc(list, func(a, b ShellCount) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Class.MemoryMiB, b.Class.MemoryMiB), cmp.Compare(a.Class.VCPUs, b.Class.VCPUs),
			cmp.Compare(a.Template, b.Template))
	})
	return list
}
