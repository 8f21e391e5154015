// Package ahead has things made beside those who ask for them: who asks takes what is
// there within a moment, or goes on without, and the next one finds it.
package ahead

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrBeingMade says that it is not there yet.
var ErrBeingMade = errors.New("it is being made")

// Options say how things are made.
type Options[K comparable] struct {
	// Make finds or makes what belongs to a key. ctx ends with Close.
	Make func(ctx context.Context, key K) (string, error)
	// Go starts a goroutine that somebody waits for.
	Go func(func())
	// Retry is how long what could not be made is not tried again.
	Retry time.Duration
}

// Maker makes each thing once at a time. It is safe for several goroutines.
type Maker[K comparable] struct {
	opts  Options[K]
	ctx   context.Context
	close context.CancelFunc

	mu     sync.Mutex
	making map[K]*making // protected by mu
}

type making struct {
	done chan struct{} // closed when the others are set
	what string
	err  error
}

// New returns a maker.
func New[K comparable](o Options[K]) *Maker[K] {
	m := &Maker[K]{opts: o, making: map[K]*making{}}
	m.ctx, m.close = context.WithCancel(context.Background())
	return m
}

// Close ends what is being made. What waits for it gets the error.
func (m *Maker[K]) Close() { m.close() }

// Get returns what is there within wait. The error is ErrBeingMade, why it could not be
// made, or ctx's.
func (m *Maker[K]) Get(ctx context.Context, key K, wait time.Duration) (string, error) {
	m.mu.Lock()
	t := m.making[key]
	if t == nil {
		t = &making{done: make(chan struct{})}
		m.making[key] = t
		m.opts.Go(func() { m.run(key, t) })
	}
	m.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-t.done:
		return t.what, t.err
	case <-timer.C:
		return "", ErrBeingMade
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// run makes it. A success is asked for anew by the next Get, since things may go; a
// failure is kept for a while.
func (m *Maker[K]) run(key K, t *making) {
	t.what, t.err = m.opts.Make(m.ctx, key)
	close(t.done)
	if t.err != nil {
		timer := time.NewTimer(m.opts.Retry)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-m.ctx.Done():
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.making, key)
}
