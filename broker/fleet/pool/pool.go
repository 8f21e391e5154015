// Package pool keeps shells ready: it decides when one is made, which one a restore is
// given, and counts them. What a shell is, and how it is made, its user knows.
//
// One goroutine, the keeper, makes shells one at a time, and none while a machine is
// being restored, which would wait for it: generic and bound ones as soon as that is
// over, rehearsed ones when nobody has asked for a machine for a while.
package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Class is a size of machines.
type Class struct {
	MemoryMiB int64 `json:"memory_mib"` // 256, 512, 1024 or 4096 in production; of the machine
	VCPUs     int   `json:"vcpus"`      // 1, 2 or 4
}

// String names the class in logs.
func (c Class) String() string { return fmt.Sprintf("%dMiB-%dcpu", c.MemoryMiB, c.VCPUs) }

// Kind is what a shell is.
type Kind string

// Kinds of shells, the fastest last.
const (
	Generic   Kind = "generic"   // of a class; can become any snapshot of it
	Bound     Kind = "bound"     // a template is laid over it; it has never run
	Rehearsed Kind = "rehearsed" // bound, run once and rolled back
)

// Key says what a shell is for.
type Key struct {
	Kind     Kind
	Class    Class
	Template string // of bound and rehearsed ones
}

// keys lists what serves a template of a class, the fastest first and best at most;
// everything for best "".
func keys(c Class, template string, best Kind) []Key {
	list := []Key{{Kind: Rehearsed, Class: c, Template: template}, {Kind: Bound, Class: c, Template: template}, {Kind: Generic, Class: c}}
	for len(list) > 1 && best != "" && list[0].Kind != best {
		list = list[1:]
	}
	return list
}

// ErrGone is what Config.Make returns when there will be no more shells of a template.
var ErrGone = errors.New("template is gone")

// Config is what a pool works with.
type Config[S any] struct {
	Want map[Kind]int  // how many are kept of each class (Generic) or template in use
	Idle time.Duration // how long no machine may have been asked for before one is rehearsed

	Make    func(context.Context, Key) (S, error)
	Alive   func(S) bool // a shell that is not is discarded rather than given
	Discard func(S)      // destroys a shell; must not wait for that
	Log     *slog.Logger
}

// Pool keeps shells ready. It is safe for several goroutines.
type Pool[S any] struct {
	cfg  Config[S]
	wake chan struct{}
	done chan struct{} // the keeper is gone

	mu     sync.Mutex
	closed bool              // protected by mu
	ready  map[Key][]S       // protected by mu; what is in use has an entry
	failed map[Key]time.Time // protected by mu; what could not be made last
	asked  time.Time         // protected by mu; when a machine was last asked for
	busy   int               // protected by mu; restores under way
}

// afterFailure is how long a key is left alone after a shell of it could not be made.
const afterFailure = 10 * time.Second

// New returns a pool whose keeper works until ctx ends. Close it then.
func New[S any](ctx context.Context, cfg Config[S]) *Pool[S] {
	p := &Pool[S]{cfg: cfg, wake: make(chan struct{}, 1), done: make(chan struct{}), ready: map[Key][]S{}, failed: map[Key]time.Time{}}
	go p.keep(ctx)
	return p
}

// Poke tells the keeper to look again.
func (p *Pool[S]) Poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Use notes that shells of a class and a template are wanted from now on.
func (p *Pool[S]) Use(c Class, template string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(c, template)
	p.Poke()
}

// note is Use with mu held.
func (p *Pool[S]) note(c Class, template string) {
	for _, k := range keys(c, template, "") {
		if _, ok := p.ready[k]; !ok {
			p.ready[k] = nil
		}
	}
}

// Begin says that a machine is being restored: until done is called, which may happen
// more than once, the keeper leaves the CPUs alone. Not ok: the pool is closed.
func (p *Pool[S]) Begin(c Class, template string) (done func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	p.note(c, template)
	p.busy++
	p.asked = time.Now()
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.busy--
		p.asked = time.Now()
		p.mu.Unlock()
		p.Poke()
	}), true
}

// Take gives away the best shell for a template that is ready, of the kind best at most;
// any is good for best "".
func (p *Pool[S]) Take(c Class, template string, best Kind) (s S, ok bool) {
	var dead []S
	p.mu.Lock()
	for _, k := range keys(c, template, best) {
		if s, ok = p.pop(k, &dead); ok {
			break
		}
	}
	p.mu.Unlock()
	for _, d := range dead {
		p.cfg.Discard(d)
	}
	return s, ok
}

// pop takes the newest shell that is alive. Preconditions: mu is held.
func (p *Pool[S]) pop(k Key, dead *[]S) (s S, ok bool) {
	for list := p.ready[k]; len(list) > 0; {
		last := len(list) - 1
		var none S
		s, list[last] = list[last], none
		list = list[:last]
		p.ready[k] = list
		if p.cfg.Alive(s) {
			return s, true
		}
		*dead = append(*dead, s)
	}
	var none S
	return none, false
}

// put adds a shell that is ready, unless the pool is closed or has forgotten its key.
func (p *Pool[S]) put(k Key, s S) {
	p.mu.Lock()
	list, wanted := p.ready[k]
	if wanted = wanted && !p.closed; wanted {
		p.ready[k] = append(list, s)
	}
	p.mu.Unlock()
	if !wanted {
		p.cfg.Discard(s)
	}
}

// Renew discards the shells of a key: new ones are better.
func (p *Pool[S]) Renew(k Key) {
	p.mu.Lock()
	all := p.ready[k]
	if len(all) > 0 {
		p.ready[k] = nil
	}
	p.mu.Unlock()
	for _, s := range all {
		p.cfg.Discard(s)
	}
	p.Poke()
}

// Drop forgets a template until it is used again, and discards its shells.
func (p *Pool[S]) Drop(template string) {
	p.mu.Lock()
	var all []S
	for k, list := range p.ready {
		if k.Template == template && k.Kind != Generic {
			all = append(all, list...)
			delete(p.ready, k)
			delete(p.failed, k)
		}
	}
	p.mu.Unlock()
	for _, s := range all {
		p.cfg.Discard(s)
	}
}

// Close ends the pool and returns the shells that were ready, which are the caller's.
// Preconditions: the context that New was given has ended.
func (p *Pool[S]) Close() (all []S) {
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, list := range p.ready {
		all = append(all, list...)
	}
	clear(p.ready)
	return all
}

// Count counts the shells of a key.
type Count struct {
	Key
	Ready, Wanted int
}

// Counts counts the shells that are ready of all that is in use and kept ready, in a
// fixed order.
func (p *Pool[S]) Counts() []Count {
	p.mu.Lock()
	defer p.mu.Unlock()
	var list []Count
	for k, ready := range p.ready {
		if want := p.cfg.Want[k.Kind]; want > 0 || len(ready) > 0 {
			list = append(list, Count{Key: k, Ready: len(ready), Wanted: want})
		}
	}
	slices.SortFunc(list, func(a, b Count) int { return compare(a.Key, b.Key) })
	return list
}

func compare(a, b Key) int {
	return cmp.Or(cmp.Compare(rank(a.Kind), rank(b.Kind)), cmp.Compare(a.Class.MemoryMiB, b.Class.MemoryMiB), cmp.Compare(a.Class.VCPUs, b.Class.VCPUs),
		cmp.Compare(a.Template, b.Template))
}

// rank orders kinds as they are made: what comes first is needed most.
func rank(k Kind) int { return slices.Index([]Kind{Generic, Bound, Rehearsed}, k) }
