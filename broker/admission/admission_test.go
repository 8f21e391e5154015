package admission

import (
	"context"
	"errors"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func enter(t *testing.T, p *Pool, n Need) *Ticket {
	t.Helper()
	k, err := p.Enter("t", n)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func admitted(k *Ticket) bool {
	select {
	case <-k.admitted:
		return true
	default:
		return false
	}
}

func TestTooLarge(t *testing.T) {
	p := New(Options{Capacity: Need{MemoryMiB: 100, DiskBytes: 100, CPUMilli: 100, Machines: 1}, MaxQueue: 1})
	for _, n := range []Need{{MemoryMiB: 101}, {DiskBytes: 101}, {CPUMilli: 101}, {Machines: 2}} {
		var e *TooLargeError
		if _, err := p.Enter("t", n); !errors.As(err, &e) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if p.Queued() != 0 {
		t.Error("a refused need is queued")
	}
}

func TestOrderAndQueueBound(t *testing.T) {
	p := New(Options{Capacity: Need{MemoryMiB: 100, Machines: 10}, MaxQueue: 2})
	a := enter(t, p, Need{MemoryMiB: 80, Machines: 1})
	big := enter(t, p, Need{MemoryMiB: 90, Machines: 1})
	small := enter(t, p, Need{MemoryMiB: 10, Machines: 1})
	if !admitted(a) || admitted(big) || admitted(small) {
		t.Fatal("a small job overtook a waiting large one")
	}
	if _, err := p.Enter("t", Need{MemoryMiB: 1}); !errors.Is(err, ErrQueueFull) {
		t.Fatalf("third in a queue of two: %v", err)
	}
	a.Release()
	a.Release()
	if !admitted(big) || !admitted(small) || p.Running() != 2 {
		t.Fatalf("after release: big %v small %v running %d", admitted(big), admitted(small), p.Running())
	}
	big.Release()
	small.Release()
	if p.used != (Need{}) {
		t.Errorf("left over: %+v", p.used)
	}
}

func TestATenantsShare(t *testing.T) {
	p := New(Options{Capacity: Need{Machines: 3}, MaxQueue: 10, TenantMachines: 2})
	take := func(tenant string) *Ticket {
		t.Helper()
		k, err := p.Enter(tenant, Need{Machines: 1})
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	a1, a2, a3, b1, b2 := take("a"), take("a"), take("a"), take("b"), take("b")
	if !admitted(a1) || !admitted(a2) || admitted(a3) || !admitted(b1) || admitted(b2) {
		t.Fatal("one machine of three is the other tenant's")
	}
	// The place that b leaves is b's: a has its share.
	b1.Release()
	if admitted(a3) || !admitted(b2) {
		t.Fatalf("after b's first: a3 %v b2 %v", admitted(a3), admitted(b2))
	}
	a1.Release()
	if !admitted(a3) {
		t.Fatal("a has one and may have two")
	}
	for _, k := range []*Ticket{a2, a3, b2} {
		k.Release()
	}
	if p.used != (Need{}) || len(p.tenants) != 0 || p.Queued() != 0 {
		t.Errorf("left over: %+v, %v", p.used, p.tenants)
	}
}

func TestLeavingTheQueue(t *testing.T) {
	p := New(Options{Capacity: Need{Machines: 1}, MaxQueue: 5})
	a := enter(t, p, Need{Machines: 1})
	b := enter(t, p, Need{Machines: 1})
	c := enter(t, p, Need{Machines: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	b.Release()
	a.Release()
	if err := c.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	c.Release()
}

func TestNeverOverCapacity(t *testing.T) {
	p := New(Options{Capacity: Need{Machines: 3}, MaxQueue: 1000})
	var mu sync.Mutex
	running, peak := 0, 0
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			k, err := p.Enter("t", Need{Machines: 1})
			if err != nil || k.Wait(context.Background()) != nil {
				t.Error("not admitted")
				return
			}
			mu.Lock()
			running++
			peak = max(peak, running)
			running--
			mu.Unlock()
			k.Release()
		})
	}
	wg.Wait()
	if peak > 3 || p.used != (Need{}) {
		t.Errorf("peak %d, left %+v", peak, p.used)
	}
}
