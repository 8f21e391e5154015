package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"thaw/api"
	"thaw/broker/catalogue"
)

func view(t *testing.T, b *Broker, tenant string) catalogue.View {
	t.Helper()
	v, err := b.Snapshots(tenant)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

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
		got, err := view(t, b, me).Show(ref)
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
	if _, err := view(t, b, me).Show(first.ID[:5]); code(t, err) != api.CodeSnapshotNotFound {
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
	tree := view(t, b, me).Tree()
	var got []string
	for _, n := range tree.Nodes {
		got = append(got, fmt.Sprint(n.Level, " ", n.Snapshot.ID, " ", n.Snapshot.Children, " ", n.Snapshot.Sandboxes))
	}
	want := []string{"0 " + root + " 1 []", "1 " + one.ID + " 2 []", "2 " + two.ID + " 0 []", "2 " + three.ID + " 0 [" + s.ID + "]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if _, err := view(t, b, me).Remove(t.Context(), "one", false); code(t, err) != api.CodeSnapshotChildren {
		t.Errorf("removed a parent: %v", err)
	}
	if _, err := view(t, b, me).Remove(t.Context(), root, true); code(t, err) != api.CodeForbidden {
		t.Errorf("removed a template: %v", err)
	}
	if r, err := view(t, b, me).Remove(t.Context(), "one", true); err != nil || len(r.Snapshots) != 3 || r.Bytes != 300 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Snapshots that hostile manifests have bent into a ring are in the list, not in the tree.
func TestSnapshotCycle(t *testing.T) {
	f := newFakeFleet()
	for i, parent := range []string{"b", "a", ""} {
		f.stored = append(f.stored, catalogue.Owned{Tenant: me, Snapshot: api.Snapshot{ID: string(rune('a' + i)), Parent: parent, State: api.SnapshotUnusable}})
	}
	b := withFleet(t, f)
	if tree := view(t, b, me).Tree(); len(tree.Nodes) != 1 {
		t.Errorf("%+v", tree)
	}
}

func TestSnapshotBecomesDurable(t *testing.T) {
	f := newFakeFleet()
	f.storing = make(chan struct{})
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	a := saved(t, b, s.ID, api.CheckpointRequest{Name: "x"})
	if v, err := view(t, b, me).Show("x"); err != nil || v.State != api.SnapshotConsistent || a.ID != v.ID {
		t.Errorf("%+v, %v", v, err)
	}
	// It can be used at once, but not be taken away.
	if _, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Snapshot: "x"}); err != nil {
		t.Error(err)
	}
	if _, _, err := view(t, b, me).Export("x"); code(t, err) != api.CodeConflict {
		t.Errorf("exported: %v", err)
	}
	close(f.storing)
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
		if v, _ := view(t, b, me).Show("x"); v.State == api.SnapshotDurable {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not durable")
		}
	}
	if l := view(t, b, me).List(); len(l) != 1 {
		t.Errorf("%+v", l)
	}
	write, _, err := view(t, b, me).Export("x")
	var out strings.Builder
	if err != nil || write(context.Background(), &out) != nil || out.String() != "archive of "+a.ID {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// Merge waits until the snapshot is in the store.
func TestMergeWaitsForDurable(t *testing.T) {
	f := newFakeFleet()
	f.storing = make(chan struct{})
	b := withFleet(t, f)
	s := sandboxOf(t, b, api.SandboxRequest{Image: "python"})
	a := saved(t, b, s.ID, api.CheckpointRequest{})
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := view(t, b, me).Merge(short, a.ID); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("merged before it is durable: %v", err)
	}
	time.AfterFunc(10*time.Millisecond, func() { close(f.storing) })
	if m, err := view(t, b, me).Merge(t.Context(), a.ID); err != nil || m.ID != a.ID || m.State != api.SnapshotDurable {
		t.Errorf("%+v, %v", m, err)
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
	l := view(t, b, me).List()
	if len(l) != 1 || l[0].State != api.SnapshotUnusable || l[0].Error.Code != api.CodeNoSpace {
		t.Fatalf("%+v", l)
	}
	if _, err := b.CreateSandbox(t.Context(), me, api.SandboxRequest{Snapshot: l[0].ID}); code(t, err) != api.CodeNoSpace {
		t.Errorf("made of a lost one: %v", err)
	}
	if _, err := view(t, b, me).Remove(t.Context(), l[0].ID, false); err != nil {
		t.Error(err)
	}
	if l := view(t, b, me).List(); len(l) != 0 {
		t.Errorf("%+v", l)
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
	if r, err := view(t, b, me).Collect(t.Context(), api.CollectRequest{DryRun: true}); err != nil || len(r.Snapshots) != 0 {
		t.Errorf("below the quota: %+v, %v", r, err)
	}
	none, keep := int64(0), int64(100)
	if r, err := view(t, b, me).Collect(t.Context(), api.CollectRequest{KeepBytes: &none, DryRun: true}); err != nil || len(r.Snapshots) != 2 {
		t.Errorf("keep nothing: %+v, %v", r, err)
	}
	dry, err := view(t, b, me).Collect(t.Context(), api.CollectRequest{KeepBytes: &keep, DryRun: true})
	if err != nil || len(dry.Snapshots) != 1 || dry.Bytes != 100 {
		t.Errorf("%+v, %v", dry, err)
	}
	wet, err := view(t, b, me).Collect(t.Context(), api.CollectRequest{KeepBytes: &keep})
	if err != nil || fmt.Sprint(wet) != fmt.Sprint(dry) {
		t.Errorf("%+v, %v", wet, err)
	}
	if l, err := view(t, b, me).Import(t.Context(), strings.NewReader("archive")); err != nil || len(l.Snapshots) != 1 {
		t.Errorf("%+v, %v", l, err)
	}
}
