package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"thaw/api"
)

func saved(t *testing.T, b *Broker, id string, r api.CheckpointRequest) api.Snapshot {
	t.Helper()
	a, err := b.Checkpoint(t.Context(), me, id, r)
	if err != nil {
		t.Fatal(err)
	}
	return a.Snapshot
}

func TestSnapshotByReference(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	first := saved(t, b, s.ID, api.CheckpointRequest{Name: "x", Durable: true})
	second := saved(t, b, s.ID, api.CheckpointRequest{Name: "x", Durable: true})
	for ref, want := range map[string]string{first.ID: first.ID, "x": second.ID, second.ID[:31]: ""} {
		got, err := b.Snapshot(me, ref)
		if want == "" {
			// The fake's ids differ in their last digits only.
			if code(t, err) != api.CodeSnapshotAmbiguous {
				t.Errorf("%s: %v", ref, err)
			}
			continue
		}
		if err != nil || got.ID != want {
			t.Errorf("%s: %s, %v", ref, got.ID, err)
		}
	}
	if _, err := b.Snapshot(me, first.ID[:5]); code(t, err) != api.CodeSnapshotNotFound {
		t.Errorf("five digits: %v", err)
	}
}

func TestSnapshotTree(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	root := s.Origin
	one := saved(t, b, s.ID, api.CheckpointRequest{Name: "one", Durable: true})
	two := saved(t, b, s.ID, api.CheckpointRequest{Name: "two", Durable: true})
	if _, err := b.Rollback(t.Context(), me, s.ID, api.RollbackRequest{Snapshot: "one"}); err != nil {
		t.Fatal(err)
	}
	three := saved(t, b, s.ID, api.CheckpointRequest{Name: "three", Durable: true})
	tree, err := b.SnapshotTree(me)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range tree.Nodes {
		got = append(got, fmt.Sprint(n.Level, " ", n.Snapshot.ID, " ", n.Snapshot.Children, " ", n.Snapshot.Sandboxes))
	}
	want := []string{"0 " + root + " 1 []", "1 " + one.ID + " 2 []", "2 " + two.ID + " 0 []", "2 " + three.ID + " 0 [" + s.ID + "]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := b.RemoveSnapshot(t.Context(), me, "one", false); code(t, err) != api.CodeSnapshotChildren {
		t.Errorf("removed a parent: %v", err)
	}
	if _, err := b.RemoveSnapshot(t.Context(), me, root, true); code(t, err) != api.CodeForbidden {
		t.Errorf("removed a template: %v", err)
	}
	if r, err := b.RemoveSnapshot(t.Context(), me, "one", true); err != nil || len(r.Snapshots) != 3 || r.Bytes != 300 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A tree that hostile manifests have bent into a ring is shown, and ends.
func TestSnapshotCycle(t *testing.T) {
	f := newFakeFleet()
	for i, parent := range []string{"b", "a", ""} {
		f.stored = append(f.stored, OwnedSnapshot{Tenant: me, Snapshot: api.Snapshot{ID: string(rune('a' + i)), Parent: parent, State: api.SnapshotUnusable}})
	}
	b := withFleet(t, f)
	if tree, err := b.SnapshotTree(me); err != nil || len(tree.Nodes) != 1 {
		t.Errorf("%+v, %v", tree, err)
	}
}

func TestSnapshotBecomesDurable(t *testing.T) {
	f := newFakeFleet()
	f.storing = make(chan struct{})
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	a := saved(t, b, s.ID, api.CheckpointRequest{Name: "x"})
	if v, err := b.Snapshot(me, "x"); err != nil || v.State != api.SnapshotConsistent || a.ID != v.ID {
		t.Errorf("%+v, %v", v, err)
	}
	// It can be used at once, but not be taken away.
	if _, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Snapshot: "x"}); err != nil {
		t.Error(err)
	}
	if _, _, err := b.ExportSnapshot(me, "x"); code(t, err) != api.CodeConflict {
		t.Errorf("exported: %v", err)
	}
	close(f.storing)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if v, _ := b.Snapshot(me, "x"); v.State == api.SnapshotDurable {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not durable")
		}
	}
	if l, err := b.Snapshots(me); err != nil || len(l) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
	write, _, err := b.ExportSnapshot(me, "x")
	var out strings.Builder
	if err != nil || write(context.Background(), &out) != nil || out.String() != "archive of "+a.ID {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A snapshot that could not be stored stays in view, with the reason, until it is removed.
func TestSnapshotIsLost(t *testing.T) {
	f := newFakeFleet()
	f.storeErr = api.Errorf(api.CodeNoSpace, "the disk is full")
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	if _, err := b.Checkpoint(t.Context(), me, s.ID, api.CheckpointRequest{Durable: true}); code(t, err) != api.CodeNoSpace {
		t.Errorf("%v", err)
	}
	l, err := b.Snapshots(me)
	if err != nil || len(l) != 1 || l[0].State != api.SnapshotUnusable || l[0].Error.Code != api.CodeNoSpace {
		t.Fatalf("%+v, %v", l, err)
	}
	if _, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Snapshot: l[0].ID}); code(t, err) != api.CodeNoSpace {
		t.Errorf("made of a lost one: %v", err)
	}
	if _, err := b.RemoveSnapshot(t.Context(), me, l[0].ID, false); err != nil {
		t.Error(err)
	}
	if l, _ := b.Snapshots(me); len(l) != 0 {
		t.Errorf("%+v", l)
	}
}

func TestCollectable(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	snap := func(id, parent string, used int, change ...func(*OwnedSnapshot)) OwnedSnapshot {
		o := OwnedSnapshot{Tenant: me, Used: at(used), Snapshot: api.Snapshot{ID: id, Parent: parent, State: api.SnapshotDurable, Bytes: 10}}
		for _, c := range change {
			c(&o)
		}
		return o
	}
	all := []OwnedSnapshot{
		snap("t", "", 0, func(o *OwnedSnapshot) { o.Tenant = "" }),
		snap("a", "t", 1), snap("b", "a", 5), snap("c", "a", 4),
		snap("pinned", "t", 0, func(o *OwnedSnapshot) { o.Pinned = true }),
		snap("used", "t", 0, func(o *OwnedSnapshot) { o.Sandboxes = []string{"s"} }),
		snap("young", "t", 9, func(o *OwnedSnapshot) { o.State = api.SnapshotConsistent }),
	}
	for keep, want := range map[int64]string{100: "[]", 60: "[]", 50: "[c]", 40: "[c b]", 35: "[c b a]", 0: "[c b a]"} {
		if got, _ := collectable(me, all, keep); fmt.Sprint(got) != want {
			t.Errorf("keep %d: %v, want %s", keep, got, want)
		}
	}
}

func TestCollectAndImport(t *testing.T) {
	b := withFleet(t, newFakeFleet())
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	saved(t, b, s.ID, api.CheckpointRequest{Durable: true})
	saved(t, b, s.ID, api.CheckpointRequest{Durable: true})
	if err := b.RemoveSandbox(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	dry, err := b.CollectSnapshots(t.Context(), me, api.CollectRequest{KeepBytes: 100, DryRun: true})
	if err != nil || len(dry.Snapshots) != 1 || dry.Bytes != 100 {
		t.Errorf("%+v, %v", dry, err)
	}
	wet, err := b.CollectSnapshots(t.Context(), me, api.CollectRequest{KeepBytes: 100})
	if err != nil || fmt.Sprint(wet) != fmt.Sprint(dry) {
		t.Errorf("%+v, %v", wet, err)
	}
	if l, err := b.ImportSnapshots(t.Context(), me, strings.NewReader("archive")); err != nil || len(l.Snapshots) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
