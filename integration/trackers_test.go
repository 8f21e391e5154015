package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/internal/hostinfo"
	"thaw/vmm/dirty"
	"thaw/vmm/vmmproc"
	"thaw/vmm/vmmproto"
)

// toucher writes one byte to each of as many pages as a line says, and answers with
// the nanoseconds that it took.
const toucher = `
import sys, time
b = bytearray(20000 * 4096)
v = 0
for line in sys.stdin:
    n, v, t = int(line) * 4096, (v + 1) % 255 + 1, time.perf_counter_ns()
    for i in range(0, n, 4096):
        b[i] = v
    print(time.perf_counter_ns() - t, flush=True)
`

// followed is a restored machine with a tracker, and a program in it.
type followed struct {
	*vmmproc.Process
	t    *testing.T
	size int64
	name dirty.Tracker

	stdin  io.Writer
	stdout *bufio.Scanner
}

// follow restores a machine and starts the program. Memory is written all over.
func follow(t *testing.T, cold vmmproc.Spec, image vmmproc.Image, name dirty.Tracker) *followed {
	t.Helper()
	cold.DirtyRing = name == dirty.Ring
	p, connect := shellOf(t, cold)
	image.Tracker = string(name)
	if _, err := p.Restore(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	if err := p.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	client := connect()
	in, stdin := io.Pipe()
	stdout, out := io.Pipe()
	ctx, cancel := context.WithCancel(t.Context())
	// It returns when the program's streams have been set up.
	exec, err := client.Exec(ctx, agentproto.ExecRequest{Argv: []string{"python3", "-c", toucher}}, agentclient.ExecIO{Stdin: in, Stdout: out, Stderr: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		p.Kill() // it may be paused
		cancel()
		exec.Wait()
		stdout.Close()
		client.Close()
	})
	f := &followed{Process: p, t: t, size: int64(cold.MemoryBytes), name: name, stdin: stdin, stdout: bufio.NewScanner(stdout)}
	f.touch(20000)
	return f
}

// ask has the program write to so many pages; await waits for its answer.
func (f *followed) ask(pages int) {
	f.t.Helper()
	if _, err := fmt.Fprintln(f.stdin, pages); err != nil {
		f.t.Fatal(err)
	}
}

func (f *followed) await() time.Duration {
	f.t.Helper()
	var ns int64
	if !f.stdout.Scan() {
		f.t.Fatalf("program ended: %v", f.stdout.Err())
	}
	if _, err := fmt.Sscan(f.stdout.Text(), &ns); err != nil {
		f.t.Fatal(err)
	}
	return time.Duration(ns)
}

func (f *followed) touch(pages int) time.Duration {
	f.t.Helper()
	f.ask(pages)
	return f.await()
}

func (f *followed) save(s vmmproc.SaveSpec) vmmproc.Saved {
	f.t.Helper()
	state, memory := tempFile(f.t, "state", 8<<20), tempFile(f.t, "pages", f.size)
	defer state.Close()
	defer memory.Close()
	s.State, s.Memory = state, memory
	saved, err := f.Save(f.t.Context(), s)
	if err != nil {
		f.t.Fatal(err)
	}
	return saved
}

// phase is how long a part of a save took.
func phase(list []vmmproto.Phase, name string) time.Duration {
	i := slices.IndexFunc(list, func(p vmmproto.Phase) bool { return p.Name == name })
	if i < 0 {
		return 0
	}
	return time.Duration(list[i].Micros) * time.Microsecond
}

// savedPython boots a machine with Python and returns its spec and image.
func savedPython(t *testing.T, s shape) (vmmproc.Spec, vmmproc.Image) {
	t.Helper()
	var cold vmmproc.Spec
	g := bootGuest(t, kernels(t)[0], s, "python", func(m *vmmproc.Spec) { cold = *m })
	shell(t, g.client, "python3 -c 'import json'")
	return cold, saveCold(t, g, &cold)
}

// allTrackers are the trackers that this host has.
func allTrackers(t *testing.T) (list []dirty.Tracker) {
	t.Helper()
	for _, a := range dirty.Host() {
		if a.Err != nil {
			t.Logf("%s: %v", a.Tracker, a.Err)
			continue
		}
		list = append(list, a.Tracker)
	}
	return list
}

// What a tracker finds in a real guest at work is all that differs: a full comparison
// in the same pause finds nothing more.
func TestTrackersMissNothing(t *testing.T) {
	s, rounds := shape{2, 512}, 3
	if hostinfo.Detect().Kind == hostinfo.Lab {
		s, rounds = shape{1, 512}, 1
	}
	cold, image := savedPython(t, s)
	for _, name := range allTrackers(t) {
		t.Run(string(name), func(t *testing.T) {
			f := follow(t, cold, image, name)
			for round := range rounds {
				for _, ahead := range []bool{false, true} {
					f.ask(15000)
					time.Sleep(time.Duration(round) * time.Millisecond)
					saved := f.save(vmmproc.SaveSpec{Tracker: string(name), CopyAhead: ahead})
					again := f.save(vmmproc.SaveSpec{Tracker: string(dirty.Full), Next: string(name), Resume: true})
					if again.Pages != 0 || again.Zero != 0 {
						t.Errorf("ahead %v: %d pages missed, %d of zeros; found %+v", ahead, again.Pages, again.Zero, saved)
					}
					f.await()
				}
			}
		})
	}
}

// With write protection the pages are copied while the guest runs on. What one save has
// copied late, and what the guest has written meanwhile, the next ones have: in the end
// nothing is missing.
func TestCopyAfterThePause(t *testing.T) {
	cold, image := savedPython(t, shape{2, 512})
	if !slices.Contains(allTrackers(t), dirty.UffdSync) {
		t.Skip("no " + dirty.UffdSync)
	}
	f := follow(t, cold, image, dirty.UffdSync)
	for range 4 {
		f.ask(15000)
		saved := f.save(vmmproc.SaveSpec{Tracker: string(dirty.UffdSync), WriteProtect: true, Resume: true})
		t.Logf("pause %v, %d pages, %v", saved.Pause, saved.Pages, saved.Phases)
		f.await()
	}
	f.save(vmmproc.SaveSpec{Tracker: string(dirty.UffdSync)})
	again := f.save(vmmproc.SaveSpec{Tracker: string(dirty.Full), Next: string(dirty.UffdSync), Resume: true})
	if again.Pages != 0 || again.Zero != 0 {
		t.Errorf("%d pages missed, %d of zeros", again.Pages, again.Zero)
	}
	f.touch(100)
}

// TestTrackerCosts prints the table of docs/adr/0011-dirty-trackers.md, if
// THAW_TRACKER_COSTS is set.
func TestTrackerCosts(t *testing.T) {
	if os.Getenv("THAW_TRACKER_COSTS") == "" {
		t.Skip("THAW_TRACKER_COSTS is not set")
	}
	cold, image := savedPython(t, shape{1, 512})
	var table strings.Builder
	for _, name := range allTrackers(t) {
		costs := map[string][]time.Duration{}
		add := func(what string, d time.Duration) { costs[what] = append(costs[what], d) }
		candidates := map[int][]int{}
		const machines = 3
		for range machines {
			f := follow(t, cold, image, name)
			// Another one saves: what is left is this one's start.
			saved := f.save(vmmproc.SaveSpec{Tracker: string(dirty.Pagemap), Next: string(name), Resume: true})
			add("start", phase(saved.Phases, "save.tracker"))
			for range 3 {
				for _, pages := range []int{10000, 100, 0} {
					first := f.touch(pages)
					if pages == 10000 {
						add("write", (first-f.touch(pages))/time.Duration(pages))
					}
					saved := f.save(vmmproc.SaveSpec{Tracker: string(name), Resume: true})
					add(fmt.Sprint("find ", pages), phase(saved.Phases, "save.find_pages"))
					add(fmt.Sprint("pause ", pages), saved.Pause)
					candidates[pages] = append(candidates[pages], saved.Candidates)
				}
			}
			f.Kill()
		}
		fmt.Fprintf(&table, "| %s |", name)
		for _, what := range []string{"start", "write", "find 0", "find 100", "find 10000", "pause 0", "pause 100", "pause 10000"} {
			list := costs[what]
			slices.Sort(list)
			fmt.Fprintf(&table, " %.1f |", float64(list[len(list)/2].Nanoseconds())/1e3)
		}
		fmt.Fprintf(&table, " %v\n", candidates)
	}
	t.Logf("µs, medians: start, first write to a page, finding 0, 100 and 10 000, pause with them, candidates\n%s", &table)
}
