package fleet

import (
	"testing"
	"time"
)

// What is counted is what changed, whatever made it: memory that is written counts, disk
// blocks count when they are written, and a checkpoint or a rollback begins anew.
func TestChanged(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	changed := func() Change {
		t.Helper()
		c, err := m.Changed(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	cell(t, m, "import os; keep = []")
	save := func() *Checkpoint {
		t.Helper()
		c, err := m.Checkpoint(t.Context(), CheckpointSpec{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	first := save()
	const pages = 4096
	before := changed()
	if before.Pages > pages/4 || before.DiskBytes != 0 {
		t.Errorf("just saved: %+v", before)
	}
	cell(t, m, "keep.append(os.urandom(16 << 20))")
	if after := changed(); after.Pages < before.Pages+pages || after.Pages > before.Pages+2*pages {
		t.Errorf("after 16 MiB: %+v, before %+v", after, before)
	}
	cell(t, m, `with open("/workspace/file", "wb") as f:
    f.write(os.urandom(4 << 20)); f.flush(); os.fsync(f.fileno())`)
	if after := changed(); after.DiskBytes < 4*mib || after.DiskBytes > 8*mib {
		t.Errorf("after a file of 4 MiB: %+v", after)
	}
	save()
	if c := changed(); c.Pages > pages/4 || c.DiskBytes != 0 {
		t.Errorf("saved again: %+v", c)
	}
	// To look changes nothing of what the next checkpoint finds.
	cell(t, m, "keep.append(os.urandom(16 << 20))")
	changed()
	if c := save(); c.Record.Pages < pages {
		t.Errorf("a checkpoint after a look stored %d pages", c.Record.Pages)
	}
	if _, err := m.Rollback(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	if c := changed(); c.Pages > pages/4 || c.DiskBytes != 0 {
		t.Errorf("rolled back: %+v", c)
	}
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	still := changed()
	time.Sleep(100 * time.Millisecond)
	if c := changed(); c != still {
		t.Errorf("a machine that stands went from %+v to %+v", still, c)
	}
}
