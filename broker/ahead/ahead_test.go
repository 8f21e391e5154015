package ahead

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func maker(t *testing.T, retry time.Duration, make func(ctx context.Context, key int) (string, error)) *Maker[int] {
	t.Helper()
	var running sync.WaitGroup
	m := New(Options[int]{Make: make, Go: running.Go, Retry: retry})
	t.Cleanup(func() { m.Close(); running.Wait() })
	return m
}

func TestSlowThing(t *testing.T) {
	slow := make(chan struct{})
	m := maker(t, time.Hour, func(context.Context, int) (string, error) { <-slow; return "thing", nil })
	if _, err := m.Get(t.Context(), 1, time.Millisecond); !errors.Is(err, ErrBeingMade) {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Get(ended, 1, time.Hour); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(slow)
	if got, err := m.Get(t.Context(), 1, time.Minute); got != "thing" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestFailureIsKept(t *testing.T) {
	broken, n := errors.New("broken"), 0
	m := maker(t, 50*time.Millisecond, func(context.Context, int) (string, error) { n++; return "", broken })
	for range 3 {
		if _, err := m.Get(t.Context(), 1, time.Minute); !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	if n != 1 {
		t.Errorf("tried %d times", n)
	}
}

func TestSuccessIsAskedAnew(t *testing.T) {
	var mu sync.Mutex
	n := map[int]int{}
	m := maker(t, time.Hour, func(_ context.Context, key int) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		n[key]++
		return "thing", nil
	})
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		for _, key := range []int{1, 2} {
			if _, err := m.Get(t.Context(), key, time.Minute); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		enough := n[1] > 1 && n[2] > 1
		mu.Unlock()
		if enough {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("asked %v times", n)
		}
	}
}
