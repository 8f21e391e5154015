package balloon

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"
)

// statsBuffer is what a driver answers.
func statsBuffer(pairs ...uint64) []byte {
	var p []byte
	for i := 0; i < len(pairs); i += 2 {
		p = binary.LittleEndian.AppendUint16(p, uint16(pairs[i]))
		p = binary.LittleEndian.AppendUint64(p, pairs[i+1])
	}
	return p
}

func TestTagNames(t *testing.T) {
	seen := map[string]Tag{}
	for tag := range Tags {
		name := tag.String()
		if other, ok := seen[name]; ok || name == "" {
			t.Errorf("tags %d and %d are both %q", other, tag, name)
		}
		seen[name] = tag
	}
	if FreeMemory.String() != "free_memory" || Tags.String() != "tag 16" {
		t.Errorf("names %s, %s", FreeMemory, Tags)
	}
}

func TestStats(t *testing.T) {
	b := newBench(t, features)
	d := b.drivers[stats]
	d.Add(d.Readable(statsBuffer(uint64(FreeMemory), 1))) // stale
	b.kick(stats)
	for round := range uint64(3) {
		// The guest: refill what comes back.
		done := make(chan struct{})
		go func() {
			defer close(done)
			eventually(t, "the buffer", func() bool { _, _, ok := d.Used(); return ok })
			d.Add(d.Readable(statsBuffer(uint64(FreeMemory), 100+round, 999, 7, uint64(TotalMemory), 4242)))
			b.kick(stats)
		}()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		s, err := b.dev.Stats(ctx)
		cancel()
		<-done
		if err != nil {
			t.Fatal(err)
		}
		free, ok := s.Value(FreeMemory)
		total, ok2 := s.Value(TotalMemory)
		if !ok || !ok2 || free != 100+round || total != 4242 {
			t.Errorf("free %d, total %d", free, total)
		}
		if _, ok := s.Value(SwapIn); ok {
			t.Error("a number that was not given")
		}
	}
	b.dev.Pause()
	if s := b.act.Queues[stats].State(); s.Next != s.Pushed {
		t.Error("a buffer is out of the queue")
	}
}

func TestStatsTimeOut(t *testing.T) {
	b := newBench(t, features)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.dev.Stats(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	// An answer that comes late is the next caller's.
	d := b.drivers[stats]
	d.Add(d.Readable(nil))
	b.kick(stats)
	eventually(t, "the buffer", func() bool { _, _, ok := d.Used(); return ok })
	d.Add(d.Readable(statsBuffer(uint64(Caches), 5)))
	b.kick(stats)
	ctx, cancel = context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	// Either it arrived before and this is a request of its own, unanswered,
	// or it is this one's answer.
	if s, err := b.dev.Stats(ctx); err == nil {
		if v, _ := s.Value(Caches); v != 5 {
			t.Errorf("caches %d", v)
		}
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestStatsWithoutDriver(t *testing.T) {
	b := newBench(t, features&^FeatureStats)
	if _, err := b.dev.Stats(context.Background()); !errors.Is(err, ErrNoStats) {
		t.Errorf("not negotiated: %v", err)
	}
	b = newBench(t, features)
	failed := make(chan error)
	go func() { _, err := b.dev.Stats(context.Background()); failed <- err }()
	time.Sleep(5 * time.Millisecond)
	b.dev.Reset()
	if err := <-failed; !errors.Is(err, ErrNoStats) {
		t.Errorf("reset: %v", err)
	}
}
