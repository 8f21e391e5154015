package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thaw/broker/fleet/tracker"
	"thaw/internal/kvmtest"
	"thaw/vmm/dirty"
)

// A machine is made with each tracker that the host has: its checkpoints, after
// rollbacks too, are found by that, and hold what was written.
func TestMachineWithTracker(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AckTimeout, c.FreezeTimeout = 20*time.Second, 20*time.Second })
	template := r.template(small)
	for _, a := range tracker.Host() {
		t.Run(string(a.Tracker), func(t *testing.T) {
			m, err := r.Restore(t.Context(), RestoreSpec{Snapshot: template, Tracker: string(a.Tracker)})
			if a.Err != nil {
				if !errors.Is(err, dirty.ErrTracker) {
					t.Errorf("without %s: %v", a.Tracker, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close(t.Context())
			var ids []string
			save := func(i int, by dirty.Tracker) {
				t.Helper()
				cell(t, m, fmt.Sprintf("x = %d; y = bytes([%d]) * (3 << 20)", i, i))
				c := checkpoint(t, m)
				if c.Record.Tracker != string(by) || c.Record.Pages == 0 {
					t.Errorf("checkpoint %d: %+v", i, c.Record)
				}
				ids = append(ids, c.ID)
			}
			first := dirty.Pagemap // a tracker that follows writes begins with the first
			if a.Tracker == dirty.Full {
				first = dirty.Full
			}
			save(1, first)
			save(2, a.Tracker)
			save(3, a.Tracker)
			if _, err := m.Rollback(t.Context(), ids[1]); err != nil {
				t.Fatal(err)
			}
			save(4, a.Tracker) // it goes on over a rollback
			save(5, a.Tracker)
			for i, id := range ids {
				fork := r.restore(id)
				if got, want := cell(t, fork, "print(x, len(y), set(y))"), fmt.Sprintf("%d %d {%d}", i+1, 3<<20, i+1); got != want {
					t.Errorf("checkpoint %d: %s, want %s", i+1, got, want)
				}
				if err := fork.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// A machine whose processor waits at nearly every instant for a page to be made writable,
// and whose page tables change, can be rolled back at any and goes on.
func TestRollbackBesideWrites(t *testing.T) {
	r := newRig(t, func(c *Config) { c.AckTimeout, c.FreezeTimeout = 20*time.Second, 20*time.Second })
	m, err := r.Restore(t.Context(), RestoreSpec{Snapshot: r.template(small), Tracker: string(dirty.UffdSync)})
	if errors.Is(err, dirty.ErrTracker) {
		kvmtest.Unavailable(t, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close(t.Context())
	cell(t, m, `import mmap, threading
old = bytearray(16 << 20)
def write():
    while True:
        with mmap.mmap(-1, 1 << 20) as new:
            for i in range(0, len(new), 4096):
                old[i] ^= 1
                new[i] = 1
threading.Thread(target=write, daemon=True).start()`)
	for i := range 8 {
		c := checkpoint(t, m)
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		if _, err := m.Rollback(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
		if got := cell(t, m, "print(len(old))"); got != fmt.Sprint(16<<20) {
			t.Fatalf("after rollback %d: %q", i, got)
		}
	}
}

// What a machine cannot have is refused before anything is done to it.
func TestTrackerIsRefused(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	for _, name := range []string{"dirty-ring", "crystal-ball"} {
		if _, err := m.Checkpoint(t.Context(), CheckpointSpec{Tracker: name}); !errors.Is(err, dirty.ErrTracker) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := cell(t, m, "print(1)"); got != "1" {
		t.Errorf("the machine says %q", got)
	}
	if _, err := r.Restore(t.Context(), RestoreSpec{Snapshot: m.Snapshot(), Tracker: "crystal-ball"}); !errors.Is(err, dirty.ErrTracker) {
		t.Errorf("restored with what is not known: %v", err)
	}
}

// The acknowledgement is timed from the request on, whatever the machine was made of.
func TestAcknowledgementCountsFromTheRequest(t *testing.T) {
	r := newRig(t, nil)
	template := r.template(small)
	check := func(rec Record) {
		t.Helper()
		var sum float64
		for _, p := range rec.Phases {
			if !strings.Contains(p.Name, "/") {
				sum += p.MS
			}
		}
		// The phases are rounded down.
		if rec.Ack < sum-0.1 || rec.Ack > rec.Total || len(rec.Phases) < 3 {
			t.Errorf("acknowledged after %.3f ms of %.3f, phases come to %.3f: %+v", rec.Ack, rec.Total, sum, rec.Phases)
		}
	}
	m, err := r.Restore(t.Context(), RestoreSpec{Snapshot: template, Shell: Generic})
	if err != nil {
		t.Fatal(err)
	}
	check(m.Record())
	rec, err := m.Rollback(t.Context(), template)
	if err != nil {
		t.Fatal(err)
	}
	check(rec)
	r.awaitShells(Rehearsed, 1)
	check(r.restore(template).Record())
}
