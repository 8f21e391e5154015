package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"thaw/api"
)

// printTree draws snapshots by descent.
//
//	SNAPSHOT                 ID        SIZE       AGE   SANDBOXES
//	template python          3f2a1b2c  182.4 MiB  2d3h
//	|- good                  1f2e3d4c  0.3 MiB    12s   sb-4kq2…
//	|  `- (fork)             9a8b7c6d  0.1 MiB    3s
//	`- bad                   5e6f7a8b  1.0 MiB    10s
func printTree(out io.Writer, tree api.SnapshotTree, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SNAPSHOT\tID\tSIZE\tAGE\tSANDBOXES")
	open := []bool{} // by level: whether a sibling follows further down
	for i, n := range tree.Nodes {
		open = append(open[:max(0, min(n.Level, len(open)))], hasSibling(tree.Nodes[i:]))
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%s\n", branch(open), treeName(n.Snapshot), shortID(n.Snapshot.ID), size(n.Snapshot.Bytes),
			since(n.Snapshot.Created, now), strings.Join(n.Snapshot.Sandboxes, " "))
	}
	return w.Flush()
}

// hasSibling says whether the first node has a younger sibling.
func hasSibling(nodes []api.SnapshotNode) bool {
	for _, n := range nodes[1:] {
		if n.Level <= nodes[0].Level {
			return n.Level == nodes[0].Level
		}
	}
	return false
}

// branch is what stands before a node's name; open has an entry for each of its levels.
func branch(open []bool) string {
	var b strings.Builder
	for level := 1; level < len(open); level++ {
		last := level == len(open)-1
		switch {
		case last && open[level]:
			b.WriteString("|- ")
		case last:
			b.WriteString("`- ")
		case open[level]:
			b.WriteString("|  ")
		default:
			b.WriteString("   ")
		}
	}
	return b.String()
}

func treeName(s api.Snapshot) string {
	name := safeText(s.Name)
	switch {
	case s.Kind == api.KindTemplate:
		name = fmt.Sprintf("template %s, %d MiB, %d vCPU(s)", safeText(s.Image), s.MemoryMiB, s.VCPUs)
	case name == "" && s.Labels["thaw.made-for"] != "":
		name = "(" + safeText(s.Labels["thaw.made-for"]) + ")"
	case name == "":
		name = "-"
	}
	switch s.State {
	case api.SnapshotUnusable:
		name += " UNUSABLE"
	case api.SnapshotConsistent:
		name += " (not durable yet)"
	}
	return name
}

// recordLine is one line of what an operation took.
func recordLine(r api.Record) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	for _, t := range []struct {
		name string
		ms   float64
	}{{"acknowledged", r.AckMS}, {"freeze", r.FreezeMS}, {"copied ahead", r.CopyAheadMS}, {"pause", r.PauseMS}} {
		if t.ms > 0 && t.ms < r.TotalMS-0.05 { // not the same time twice
			add("%s %.1f ms", t.name, t.ms)
		}
	}
	if r.Shell != "" {
		add("%s shell", r.Shell)
	}
	if r.Op == "checkpoint" {
		add("%d of %d pages stored", r.Pages, r.Candidates)
		if r.Bytes > 0 {
			add("%s on disk", size(r.Bytes))
		}
		add("depth %d", r.Depth)
	}
	if r.Op == "rollback" {
		add("%d of %d pages put back", r.CopiedPages, r.PrivatePages)
	}
	if r.Tracker != "" {
		add("by %s", r.Tracker)
	}
	if r.Generation != 0 {
		add("generation %d", r.Generation)
	}
	return fmt.Sprintf("%s in %.1f ms: %s", r.Op, r.TotalMS, strings.Join(parts, ", "))
}

func forkLine(f api.ForkAnswer) string {
	line := fmt.Sprintf("%d fork(s) of %s in %.1f ms", len(f.Sandboxes), shortID(f.Snapshot), f.TotalMS)
	if f.Checkpoint != nil {
		line += "; " + recordLine(*f.Checkpoint)
	}
	return line
}

// shortID is enough of a snapshot's id for people, and for the daemon.
func shortID(id string) string { return id[:min(8, len(id))] }

// safeText is text of somebody's as it may go to a terminal.
func safeText(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
		return strconv.Quote(s)
	}
	return s
}

func size(bytes int64) string {
	const kib, mib, gib = 1 << 10, 1 << 20, 1 << 30
	switch {
	case bytes >= gib:
		return fmt.Sprintf("%.1f GiB", float64(bytes)/gib)
	case bytes >= mib/10:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/mib)
	}
	return fmt.Sprintf("%.1f KiB", float64(bytes)/kib)
}

func age(t time.Time) string { return since(t, time.Now()) }

// since is a rough age: two units at most.
func since(t, now time.Time) string {
	d := max(0, now.Sub(t))
	day := 24 * time.Hour
	switch {
	case d >= day:
		return fmt.Sprintf("%dd%dh", d/day, d%day/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%dh%dm", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%dm%ds", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}
