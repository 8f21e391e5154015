package integration

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/kernel"
	"thaw/vmm/vmmproc"
)

// TestClockAfterDays: a restored guest's wall clock is right however long the
// checkpoint lay, its monotonic clock goes on where it was, and timers fire in
// their time.
func TestClockAfterDays(t *testing.T) {
	// gap is how long the checkpoint lies in fact; timers of clock.py run longer.
	const gap = 3 * time.Second
	each(t, []shape{{2, 512}}, func(t *testing.T, k *kernel.Kernel, s shape) {
		b := restore(t, template(t, k, s, nil), nil)
		client, _, _ := b.awaken(t, 0)
		id, out := launch(t, client, "clock.py")
		out.await(t, "up")
		freeze(t, client)
		saved := b.save(t, vmmproc.SaveSpec{})
		checkpointed := time.Now()
		client.Close()
		for _, ahead := range []time.Duration{0, 3 * 24 * time.Hour, 40 * 24 * time.Hour} {
			t.Run(ahead.String(), func(t *testing.T) {
				time.Sleep(gap - time.Since(checkpointed))
				b := restore(t, saved, nil)
				client, g, res := b.awaken(t, ahead)
				if d := time.Duration(res.Wall - g.Wall); d < 0 || d > 20*time.Second {
					t.Errorf("clock is %v after that of the generation", d)
				}
				b.checkClock(t, client, ahead)
				b.checkTimers(t, client, id, time.Since(checkpointed)+ahead)
			})
		}
		// Of the machine itself, after a rollback.
		b.rollback(t, saved)
		lain := time.Since(checkpointed)
		client, _, _ = b.awaken(t, 0)
		b.checkClock(t, client, 0)
		b.checkTimers(t, client, id, lain)
	})
}

// checkTimers looks at what clock.py saw of a checkpoint that lay for so long as
// the guest was told.
func (b *box) checkTimers(t *testing.T, c *agentclient.Client, id uint64, lain time.Duration) {
	t.Helper()
	days := lain > time.Hour
	var r struct {
		Jump struct {
			Wall, Monotonic, Boot float64 // seconds
			Back                  bool
		}
		Fired map[string]float64 // seconds after the start, monotonic
		Seen  float64            // the new generation
	}
	const delay = 5 // seconds, of the program's timers
	attach(t, c, id).result(t, &r)
	// The guest runs from the freeze to the save, and from the restore to the
	// acknowledgement.
	slack := 1 + b.ack.Seconds()
	if r.Jump.Back || r.Jump.Monotonic > slack || r.Jump.Boot > slack {
		t.Errorf("monotonic clocks jumped: %+v", r.Jump)
	}
	if d := r.Jump.Wall - lain.Seconds(); d < -5-slack || d > 5+slack {
		t.Errorf("wall clock jumped %v s, the checkpoint lay for %v", r.Jump.Wall, lain)
	}
	for _, name := range []string{"sleep", "condition", "timerfd"} {
		if at := r.Fired[name]; at < delay-0.01 || at > max(delay, r.Seen)+slack {
			t.Errorf("timer %q of %d s fired after %v", name, delay, at)
		}
	}
	if at, fired := r.Fired["wall clock"]; fired != days || days && (at < r.Seen-slack || at > r.Seen+slack) {
		t.Errorf("timer for a time in an hour fired after %v (%v), the jump of %v was at %v", at, fired, lain, r.Seen)
	}
}

// checkClock compares the guest's wall clock with the host's, that many ahead:
// the best of some readings, each of which takes a while. On a host under load
// the guest is late by as much as it was late to hear of its generation.
func (b *box) checkClock(t *testing.T, c *agentclient.Client, ahead time.Duration) {
	t.Helper()
	best := time.Hour
	for range 5 {
		before := time.Now().Add(ahead)
		out := shell(t, c, "date +%s%N")
		after := time.Now().Add(ahead)
		ns, err := strconv.ParseInt(strings.TrimSpace(out), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		guest := time.Unix(0, ns)
		best = min(best, max(before.Sub(guest), guest.Sub(after), 0))
	}
	if best > max(100*time.Millisecond, b.ack) {
		t.Errorf("guest's clock is off by %v, its generation took %v", best, b.ack)
	}
}
