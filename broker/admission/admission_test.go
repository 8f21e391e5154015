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
	k, err := p.Enter(n)
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
	p := New(Need{MemoryMiB: 100, DiskBytes: 100, CPUMilli: 100, Machines: 1}, 1)
	for _, n := range []Need{{MemoryMiB: 101}, {DiskBytes: 101}, {CPUMilli: 101}, {Machines: 2}} {
		var e *TooLargeError
		if _, err := p.Enter(n); !errors.As(err, &e) {
			t.Errorf("%+v: %v", n, err)
		}
	}
	if p.Queued() != 0 {
		t.Error("a refused need is queued")
	}
}

func TestOrderAndQueueBound(t *testing.T) {
	p := New(Need{MemoryMiB: 100, Machines: 10}, 2)
	a := enter(t, p, Need{MemoryMiB: 80, Machines: 1})
	big := enter(t, p, Need{MemoryMiB: 90, Machines: 1})
	small := enter(t, p, Need{MemoryMiB: 10, Machines: 1})
	if !admitted(a) || admitted(big) || admitted(small) {
		t.Fatal("a small job overtook a waiting large one")
	}
	if _, err := p.Enter(Need{MemoryMiB: 1}); !errors.Is(err, ErrQueueFull) {
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

func TestLeavingTheQueue(t *testing.T) {
	p := New(Need{Machines: 1}, 5)
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
	p := New(Need{Machines: 3}, 1000)
	var mu sync.Mutex
	running, peak := 0, 0
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			k, err := p.Enter(Need{Machines: 1})
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
