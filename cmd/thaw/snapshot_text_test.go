package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"thaw/api"
)

func TestTree(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	node := func(level int, name, id string, bytes int64, ago time.Duration) api.SnapshotNode {
		return api.SnapshotNode{Level: level, Snapshot: api.Snapshot{
			ID: id + strings.Repeat("0", 24), Kind: api.KindCheckpoint, State: api.SnapshotDurable, Name: name, Bytes: bytes, Created: now.Add(-ago),
		}}
	}
	template := node(0, "", "3f2a1b2c", 182<<20, 50*time.Hour)
	template.Snapshot.Kind, template.Snapshot.Image, template.Snapshot.MemoryMiB, template.Snapshot.VCPUs = api.KindTemplate, "python", 512, 1
	fork := node(3, "", "9a8b7c6d", 50<<10, 3*time.Second)
	fork.Snapshot.Labels, fork.Snapshot.State = map[string]string{"thaw.made-for": "fork"}, api.SnapshotConsistent
	fork.Snapshot.Sandboxes = []string{"sb-a", "sb-b"}
	lost := node(0, "\x1b[2J", "11112222", 1<<20, 0)
	lost.Snapshot.State = api.SnapshotUnusable
	tree := api.SnapshotTree{Nodes: []api.SnapshotNode{
		template, node(1, "good", "1f2e3d4c", 300<<10, 12*time.Second), node(2, "better", "aaaa1111", 2<<30, 90*time.Second), fork,
		node(2, "", "bbbb2222", 0, 2*time.Hour), node(1, "bad", "5e6f7a8b", 1<<20, 10*time.Second), lost,
	}}
	var out strings.Builder
	if err := printTree(&out, tree, now); err != nil {
		t.Fatal(err)
	}
	want := "" +
		"SNAPSHOT                             ID        SIZE       AGE    SANDBOXES\n" +
		"template python, 512 MiB, 1 vCPU(s)  3f2a1b2c  182.0 MiB  2d2h   \n" +
		"|- good                              1f2e3d4c  0.3 MiB    12s    \n" +
		"|  |- better                         aaaa1111  2.0 GiB    1m30s  \n" +
		"|  |  `- (fork) (not durable yet)    9a8b7c6d  50.0 KiB   3s     sb-a sb-b\n" +
		"|  `- -                              bbbb2222  0.0 KiB    2h0m   \n" +
		"`- bad                               5e6f7a8b  1.0 MiB    10s    \n" +
		"\"\\x1b[2J\" UNUSABLE                   11112222  1.0 MiB    0s     \n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Error(d)
	}
}

// A tree from a daemon that is wrong about levels is drawn somehow.
func TestTreeOfNonsense(t *testing.T) {
	for _, levels := range [][]int{{5, 0, 9}, {-1, 3}, {0, 2, 1, 7}} {
		var tree api.SnapshotTree
		for _, l := range levels {
			tree.Nodes = append(tree.Nodes, api.SnapshotNode{Level: l})
		}
		if err := printTree(&strings.Builder{}, tree, time.Time{}); err != nil {
			t.Error(err)
		}
	}
}

func TestRecordLine(t *testing.T) {
	for _, c := range []struct {
		r    api.Record
		want string
	}{
		{api.Record{Op: "create", Shell: api.ShellRehearsed, TotalMS: 3.21, AckMS: 1.5, Generation: 7}, "create in 3.2 ms: acknowledged 1.5 ms, rehearsed shell, generation 7"},
		{api.Record{Op: "checkpoint", TotalMS: 9, FreezeMS: 1, PauseMS: 2, Pages: 10, Candidates: 20, Bytes: 40960, Depth: 1, Tracker: "pagemap"},
			"checkpoint in 9.0 ms: freeze 1.0 ms, pause 2.0 ms, 10 of 20 pages stored, 40.0 KiB on disk, depth 1, by pagemap"},
		{api.Record{Op: "rollback", TotalMS: 2, PrivatePages: 100, CopiedPages: 7, Generation: 8}, "rollback in 2.0 ms: 7 of 100 pages put back, generation 8"},
	} {
		if got := recordLine(c.r); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
