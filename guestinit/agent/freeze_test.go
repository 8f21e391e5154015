package agent

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
)

func TestGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		if err := g.enter(); err != nil {
			t.Fatal(err)
		}
		// A start that takes too long.
		if err := g.shutUntil(time.Now().Add(time.Second)); !errors.Is(err, cgroup.ErrFreezeTimeout) {
			t.Errorf("error is %v", err)
		}
		if err := g.enter(); err != nil {
			t.Errorf("closed after a missed deadline: %v", err)
		}
		g.leave()
		// One that ends in time; others are refused meanwhile.
		var wg sync.WaitGroup
		wg.Go(func() {
			time.Sleep(500 * time.Millisecond)
			if err := g.enter(); !errors.Is(err, agentproto.ErrBusy) {
				t.Errorf("error is %v", err)
			}
			g.leave()
		})
		begin := time.Now()
		if err := g.shutUntil(begin.Add(time.Second)); err != nil || time.Since(begin) != 500*time.Millisecond {
			t.Errorf("shut after %v, %v", time.Since(begin), err)
		}
		wg.Wait()
		if err := g.enter(); !errors.Is(err, agentproto.ErrBusy) {
			t.Errorf("error is %v", err)
		}
		g.open()
		if err := g.enter(); err != nil {
			t.Error(err)
		}
		g.leave()
	})
}

// steps records what a generation does, in order.
type steps struct {
	s    *Server
	log  []string
	fail error
	hook error
}

func (r *steps) Renew(g agentproto.Generation) (agentproto.GenerationResult, error) {
	r.log = append(r.log, "renew")
	return agentproto.GenerationResult{Number: g.Number}, r.fail
}

type hooks struct{ r *steps }

func (h hooks) Frozen() {}

func (h hooks) Renew(_ agentproto.Generation, frozen bool) error {
	h.r.log = append(h.r.log, "hooks")
	if !frozen || !h.r.s.freezer.frozen {
		h.r.log = append(h.r.log, "not frozen")
	}
	return h.r.hook
}

// Everything that fails leaves the machine frozen, and its number unused.
func TestGenerationFailsClosed(t *testing.T) {
	s := newServer(t)
	r := &steps{s: s}
	s.cfg.Renewer = r
	s.SetHooks(hooks{r})
	c, host := pair(t, s)
	ask := func(number uint64, want agentproto.FrameType) {
		t.Helper()
		payload, err := agentproto.Encode(agentproto.Generation{
			Number: number, Seed: make([]byte, agentproto.SeedSize), Wall: time.Now().UnixNano(), Hostname: "h",
			MachineID: make([]byte, agentproto.MachineIDSize),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.generation(payload); err != nil {
			t.Fatal(err)
		}
		if f, err := host.Next(); err != nil || f.Type != want {
			t.Fatalf("%v frame, %v; want %v", f.Type, err, want)
		}
	}
	if _, err := s.freeze(agentproto.FreezeRequest{}); err != nil {
		t.Fatal(err)
	}
	check := func(frozen bool, last uint64) {
		t.Helper()
		if n, fr := s.freezer.state(); fr != frozen || n != last {
			t.Errorf("frozen %v, generation %d", fr, n)
		}
	}
	r.fail = errors.New("no entropy")
	ask(5, agentproto.FrameError)
	check(true, 0)
	r.fail, r.hook = nil, errors.New("interpreter is gone")
	ask(5, agentproto.FrameError)
	check(true, 0)
	r.hook = nil
	ask(5, agentproto.FrameOK)
	check(false, 5)
	ask(5, agentproto.FrameError)
	ask(4, agentproto.FrameError)
	if want := []string{"renew", "renew", "hooks", "renew", "hooks"}; len(r.log) != len(want) {
		t.Errorf("steps were %v", r.log)
	}
	// Not acknowledged is not thawed.
	if _, err := s.freeze(agentproto.FreezeRequest{}); err != nil {
		t.Fatal(err)
	}
	c.nc.Close()
	payload, _ := agentproto.Encode(agentproto.Generation{
		Number: 6, Seed: make([]byte, agentproto.SeedSize), Wall: time.Now().UnixNano(), Hostname: "h",
		MachineID: make([]byte, agentproto.MachineIDSize),
	})
	if err := c.generation(payload); err == nil {
		t.Error("sent over a closed connection")
	}
	check(true, 5)
	s.freezer.mu.Lock()
	defer s.freezer.mu.Unlock()
	if err := s.thawLocked(); err != nil {
		t.Error(err)
	}
}
