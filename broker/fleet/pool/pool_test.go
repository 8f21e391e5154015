package pool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var (
	small = Class{MemoryMiB: 512, VCPUs: 1}
	large = Class{MemoryMiB: 1024, VCPUs: 2}
)

// fake is a shell of a test.
type fake struct {
	key  Key
	dead bool
}

// bench is a pool of fakes, and what happened to them. Its methods are for one goroutine
// of a bubble, after synctest.Wait.
type bench struct {
	*Pool[*fake]
	stop context.CancelFunc

	mu        sync.Mutex
	made      []Key // protected by mu, as is the rest
	discarded []*fake
	fail      map[Kind]error
}

func newBench(want map[Kind]int) *bench {
	ctx, stop := context.WithCancel(context.Background())
	b := &bench{stop: stop, fail: map[Kind]error{}}
	b.Pool = New(ctx, Config[*fake]{
		Want: want, Idle: 50 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Make: func(_ context.Context, k Key) (*fake, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.made = append(b.made, k)
			return &fake{key: k}, b.fail[k.Kind]
		},
		Alive: func(f *fake) bool { return !f.dead },
		Discard: func(f *fake) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.discarded = append(b.discarded, f)
		},
	})
	return b
}

// kinds lists what was made since the last call.
func (b *bench) kinds() (list []Kind) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.made {
		list = append(list, k.Kind)
	}
	b.made = nil
	return list
}

func (b *bench) close() []*fake {
	b.stop()
	return b.Close()
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(map[Kind]int{Generic: 2, Bound: 1, Rehearsed: 1})
		defer b.close()
		done, ok := b.Begin(small, "t")
		if !ok {
			t.Fatal("closed")
		}
		if got := b.kinds(); got != nil {
			t.Fatalf("made %v while a machine was restored", got)
		}
		done()
		done()
		if got := b.kinds(); !slices.Equal(got, []Kind{Generic, Generic, Bound}) {
			t.Fatalf("made at once: %v", got)
		}
		time.Sleep(49 * time.Millisecond)
		if got := b.kinds(); got != nil {
			t.Fatalf("made %v too early", got)
		}
		time.Sleep(2 * time.Millisecond)
		if got := b.kinds(); !slices.Equal(got, []Kind{Rehearsed}) {
			t.Fatalf("made when idle: %v", got)
		}
		// The best first, of no better kind than asked for, never of another template.
		for i, take := range []struct {
			template string
			best     Kind
			want     Kind
		}{{"t", Generic, Generic}, {"other", "", Generic}, {"t", Bound, Bound}, {"t", Bound, ""}, {"t", "", Rehearsed}, {"t", "", ""}} {
			s, ok := b.Take(small, take.template, take.best)
			if ok != (take.want != "") || ok && s.key.Kind != take.want {
				t.Errorf("take %d got %+v, %v", i, s, ok)
			}
		}
		if _, ok := b.Take(large, "t", ""); ok {
			t.Error("took a shell of another class")
		}
		if got := fmt.Sprint(b.Counts()); got != fmt.Sprint([]Count{
			{Key{Generic, small, ""}, 0, 2}, {Key{Bound, small, "t"}, 0, 1}, {Key{Rehearsed, small, "t"}, 0, 1},
		}) {
			t.Error(got)
		}
	})
}

func TestDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(map[Kind]int{Generic: 2})
		defer b.close()
		b.Use(small, "t")
		b.kinds()
		b.mu.Lock()
		newest := b.ready[Key{Kind: Generic, Class: small}][1]
		b.mu.Unlock()
		newest.dead = true
		s, ok := b.Take(small, "t", "")
		if !ok || s == newest || len(b.discarded) != 1 || b.discarded[0] != newest {
			t.Errorf("took %+v, %v; discarded %v", s, ok, b.discarded)
		}
		if _, ok := b.Take(small, "t", ""); ok {
			t.Error("took a third of two")
		}
	})
}

func TestFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(map[Kind]int{Generic: 1, Rehearsed: 1})
		defer b.close()
		b.fail[Rehearsed] = errors.New("not now")
		b.Use(small, "t")
		time.Sleep(9 * time.Second)
		if got := b.kinds(); !slices.Equal(got, []Kind{Generic, Rehearsed}) {
			t.Fatalf("made %v", got)
		}
		time.Sleep(2 * time.Second)
		if got := b.kinds(); !slices.Equal(got, []Kind{Rehearsed}) {
			t.Fatalf("made %v after a failure", got)
		}
		b.mu.Lock()
		b.fail[Rehearsed] = fmt.Errorf("rehearse: %w", ErrGone)
		b.mu.Unlock()
		time.Sleep(time.Hour)
		if got := b.kinds(); !slices.Equal(got, []Kind{Rehearsed}) {
			t.Fatalf("made %v of a template that is gone", got)
		}
	})
}

func TestDropAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(map[Kind]int{Generic: 1, Bound: 1, Rehearsed: 1})
		b.Use(small, "a")
		b.Use(small, "b")
		time.Sleep(time.Second)
		b.kinds()
		b.Drop("a")
		if len(b.discarded) != 2 || b.discarded[0].key.Template != "a" || b.discarded[1].key.Template != "a" {
			t.Errorf("discarded %v", b.discarded)
		}
		b.Renew(Key{Bound, small, "b"})
		if got := b.kinds(); len(b.discarded) != 3 || !slices.Equal(got, []Kind{Bound}) {
			t.Errorf("discarded %v, made %v", b.discarded, got)
		}
		b.Renew(Key{Bound, small, "a"})
		if got := b.kinds(); got != nil {
			t.Errorf("made %v of a template that is forgotten", got)
		}
		if all := b.close(); len(all) != 3 {
			t.Errorf("%d shells at the end", len(all))
		}
		if _, ok := b.Begin(small, "a"); ok {
			t.Error("began on a closed pool")
		}
		late := &fake{}
		b.put(Key{Kind: Generic, Class: small}, late)
		if len(b.discarded) != 4 || b.discarded[3] != late {
			t.Error("a shell that came late was kept")
		}
	})
}
