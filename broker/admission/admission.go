// Package admission decides when a job may take memory, disk, CPU and a machine
// from the host: at once, after waiting in a bounded first-in first-out queue, or
// never. A job whose tenant has its share of the machines waits without holding
// up those behind it.
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

// Options bounds a pool.
type Options struct {
	Capacity       Need
	MaxQueue       int   // jobs that wait
	TenantMachines int64 // machines of one tenant at a time; 0 is all
}

// Pool holds the host's capacity, reserves already taken off.
type Pool struct {
	opts Options

	mu      sync.Mutex
	used    Need             // protected by mu
	tenants map[string]int64 // protected by mu; admitted machines
	queue   []*Ticket        // protected by mu; not yet admitted, oldest first
}

// New makes a pool.
func New(o Options) *Pool {
	if o.TenantMachines == 0 {
		o.TenantMachines = o.Capacity.Machines
	}
	return &Pool{opts: o, tenants: map[string]int64{}}
}

// Capacity is what the pool can give in all.
func (p *Pool) Capacity() Need { return p.opts.Capacity }

// Ticket is a job's place in the queue and then its share. It must be released,
// admitted or not; releasing twice is harmless.
type Ticket struct {
	pool     *Pool
	tenant   string
	need     Need
	admitted chan struct{}
	released bool // protected by pool.mu
}

// Enter queues a tenant's need. It fails with *TooLargeError if the pool could never give
// it and with ErrQueueFull if too many wait already.
func (p *Pool) Enter(tenant string, need Need) (*Ticket, error) {
	if e := need.exceeds(p.opts.Capacity); e != nil {
		return nil, e
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &Ticket{pool: p, tenant: tenant, need: need, admitted: make(chan struct{})}
	p.queue = append(p.queue, t)
	p.admit()
	if len(p.queue) > p.opts.MaxQueue {
		p.queue = p.queue[:len(p.queue)-1]
		t.released = true
		return nil, ErrQueueFull
	}
	return t, nil
}

// admit lets in as many as fit, in order: a large job is not overtaken for ever
// by small ones. Only who waits for machines of its own tenant is passed by.
// Preconditions: mu is held.
func (p *Pool) admit() {
	var waiting []*Ticket
	for i, t := range p.queue {
		if p.tenants[t.tenant]+t.need.Machines > p.opts.TenantMachines {
			waiting = append(waiting, t)
			continue
		}
		after := p.used.add(t.need, 1)
		if after.exceeds(p.opts.Capacity) != nil {
			waiting = append(waiting, p.queue[i:]...)
			break
		}
		p.used = after
		p.tenants[t.tenant] += t.need.Machines
		close(t.admitted)
	}
	p.queue = waiting
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
		if p.tenants[t.tenant] -= t.need.Machines; p.tenants[t.tenant] == 0 {
			delete(p.tenants, t.tenant)
		}
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
