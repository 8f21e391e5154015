// Package admission decides when a job may take memory, disk, CPU and a machine
// from the host: at once, after waiting in a bounded first-in first-out queue, or
// never.
package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrQueueFull is returned when the queue holds as many jobs as it may.
var ErrQueueFull = errors.New("admission: queue is full")

// TooLargeError says that a need exceeds what the host could ever give.
type TooLargeError struct {
	What       string
	Need, Have int64
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("admission: %s: needs %d of %d", e.What, e.Need, e.Have)
}

// Need is what a job takes, or what a host has to give.
type Need struct {
	MemoryMiB int64
	DiskBytes int64
	CPUMilli  int64 // thousandths of a CPU
	Machines  int64
}

func (n Need) add(o Need, sign int64) Need {
	return Need{n.MemoryMiB + sign*o.MemoryMiB, n.DiskBytes + sign*o.DiskBytes, n.CPUMilli + sign*o.CPUMilli, n.Machines + sign*o.Machines}
}

// exceeds returns the first resource of which n has more than have.
func (n Need) exceeds(have Need) *TooLargeError {
	switch {
	case n.MemoryMiB > have.MemoryMiB:
		return &TooLargeError{"memory in MiB", n.MemoryMiB, have.MemoryMiB}
	case n.DiskBytes > have.DiskBytes:
		return &TooLargeError{"disk in bytes", n.DiskBytes, have.DiskBytes}
	case n.CPUMilli > have.CPUMilli:
		return &TooLargeError{"thousandths of a CPU", n.CPUMilli, have.CPUMilli}
	case n.Machines > have.Machines:
		return &TooLargeError{"machines", n.Machines, have.Machines}
	}
	return nil
}

// Pool holds the host's capacity, reserves already taken off.
type Pool struct {
	capacity Need
	maxQueue int

	mu    sync.Mutex
	used  Need      // protected by mu
	queue []*Ticket // protected by mu; not yet admitted, oldest first
}

// New makes a pool with a capacity and a bound for its queue.
func New(capacity Need, maxQueue int) *Pool {
	return &Pool{capacity: capacity, maxQueue: maxQueue}
}

// Capacity is what the pool can give in all.
func (p *Pool) Capacity() Need { return p.capacity }

// Ticket is a job's place in the queue and then its share. It must be released,
// admitted or not; releasing twice is harmless.
type Ticket struct {
	pool     *Pool
	need     Need
	admitted chan struct{}
	released bool // protected by pool.mu
}

// Enter queues a need. It fails with *TooLargeError if the pool could never give
// it and with ErrQueueFull if too many wait already.
func (p *Pool) Enter(need Need) (*Ticket, error) {
	if e := need.exceeds(p.capacity); e != nil {
		return nil, e
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &Ticket{pool: p, need: need, admitted: make(chan struct{})}
	p.queue = append(p.queue, t)
	p.admit()
	if len(p.queue) > p.maxQueue {
		p.queue = p.queue[:len(p.queue)-1]
		t.released = true
		return nil, ErrQueueFull
	}
	return t, nil
}

// admit lets in as many as fit, in order: a large job is not overtaken for ever
// by small ones. Preconditions: mu is held.
func (p *Pool) admit() {
	for len(p.queue) > 0 {
		t := p.queue[0]
		after := p.used.add(t.need, 1)
		if after.exceeds(p.capacity) != nil {
			return
		}
		p.used = after
		p.queue = p.queue[1:]
		close(t.admitted)
	}
}

// Admitted reports whether the ticket has its share.
func (t *Ticket) Admitted() bool {
	select {
	case <-t.admitted:
		return true
	default:
		return false
	}
}

// Wait returns when the ticket is admitted or ctx ends.
func (t *Ticket) Wait(ctx context.Context) error {
	if t.Admitted() {
		return nil
	}
	select {
	case <-t.admitted:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Release gives the share back, or leaves the queue.
func (t *Ticket) Release() {
	p := t.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.released {
		return
	}
	t.released = true
	select {
	case <-t.admitted:
		p.used = p.used.add(t.need, -1)
	default:
		for i, q := range p.queue {
			if q == t {
				p.queue = append(p.queue[:i:i], p.queue[i+1:]...)
				break
			}
		}
	}
	p.admit()
}

// Queued is how many wait now.
func (p *Pool) Queued() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// Running is how many machines are admitted now.
func (p *Pool) Running() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.used.Machines)
}
