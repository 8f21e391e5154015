package vmmproc

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"thaw/internal/unixfd"
)

func TestRequests(t *testing.T) {
	ctx := context.Background()
	p := start(t, testSpec(t, "idle"))
	if err := p.Pause(ctx); err != nil {
		t.Error(err)
	}
	if err := p.Pause(ctx); err == nil || !strings.Contains(err.Error(), "already paused") {
		t.Errorf("second pause: %v", err)
	}
	if err := p.Resume(ctx); err != nil {
		t.Error(err)
	}
	stats, err := p.Stats(ctx)
	if err != nil || stats["probe.files"] != 4 {
		t.Errorf("stats %v, %v", stats, err)
	}
	if _, err := p.MemoryStats(ctx); err == nil || !strings.Contains(err.Error(), "deadline") {
		t.Errorf("memory statistics that never come: %v", err)
	}
	if err := p.SetBalloon(ctx, 65); err == nil || !strings.Contains(err.Error(), "more than there is") {
		t.Errorf("balloon of 65 MiB: %v", err)
	}
	if err := p.SetBalloon(ctx, 64); err != nil {
		t.Error(err)
	}
	memory, err := p.MemoryStats(ctx)
	if err != nil || memory["free_memory"] != 64<<20 {
		t.Errorf("memory statistics %v, %v", memory, err)
	}
	console, err := p.Console(ctx)
	if err != nil || string(console) != "probe: idle\n" {
		t.Errorf("console %q, %v", console, err)
	}
	var names []string
	for _, phase := range p.Phases() {
		if !strings.HasPrefix(phase.Name, "jail.") {
			names = append(names, phase.Name)
		}
	}
	if got := strings.Join(names, " "); got != "spawn receive jail machine machine.nothing_at_all" {
		t.Errorf("phases %q", got)
	}
	expired, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
	defer cancel()
	if _, err := p.Stats(expired); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("expired request: %v", err)
	}
	if err := p.Stop(ctx); err != nil {
		t.Error(err)
	}
	if e := end(t, p); e.Reason != Stopped || string(e.Console) != "probe: idle\n" || e.Code != 0 {
		t.Errorf("got %+v", e)
	}
	if err := p.Stop(ctx); err != nil {
		t.Errorf("stop after the end: %v", err)
	}
	if _, err := p.Stats(ctx); !errors.Is(err, ErrExited) {
		t.Errorf("stats after the end: %v", err)
	}
}

func TestConnect(t *testing.T) {
	spec := testSpec(t, "echo")
	var refused atomic.Int32
	spec.Connect = func(port uint32) (*os.File, error) {
		if port != 1025 {
			refused.Add(1)
			return nil, errors.New("no such port")
		}
		conn, theirs, err := unixfd.PairConn(unixfd.Stream)
		if err != nil {
			return nil, err
		}
		go func() {
			io.Copy(conn, conn)
			conn.Close()
		}()
		return theirs, nil
	}
	p := start(t, spec)
	e := end(t, p)
	if e.Reason != Reset || !strings.Contains(string(e.Console), "echo: hello from port 1025\n") || refused.Load() != 1 {
		t.Errorf("got %+v, console %q, %d refused", e, e.Console, refused.Load())
	}
	spec = testSpec(t, "echo")
	if e := end(t, start(t, spec)); e.Reason != Internal || !strings.Contains(e.Detail, "nothing listens") {
		t.Errorf("without a callback: %+v", e)
	}
}

// fileWith returns an open file with text in it.
func fileWith(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return f
}

// Every descriptor arrives in its place, and a refusal is an error.
func TestSnapshotFiles(t *testing.T) {
	ctx := context.Background()
	p := start(t, testSpec(t, "idle"))
	file := func(text string) *os.File { return fileWith(t, text) }
	image := Image{
		State: file("state"), Plan: file("plan"), Base: file("base"), Overlays: []*os.File{file("o1"), file("o2")},
		Disks: []Disk{{Layers: []*os.File{file("a1")}}, {Layers: []*os.File{file("b1"), file("b2")}}},
	}
	r, err := p.Restore(ctx, image)
	if err != nil || r.Private != 8 {
		t.Errorf("restore: %+v, %v", r, err)
	}
	image.Base, image.Overlays, image.Stream = nil, nil, file("stream")
	if r, err = p.Rollback(ctx, image, file("record")); err != nil || r.Private != 7 {
		t.Errorf("rollback: %+v, %v", r, err)
	}
	save := SaveSpec{State: file("state"), Memory: file("memory"), Tops: []*os.File{file("t1"), file("t2")}}
	s, err := p.Save(ctx, save)
	if err != nil || s.Pages != 4 || s.Pause != 1500*time.Microsecond {
		t.Errorf("save: %+v, %v", s, err)
	}
	if differ, looked, err := p.Changed(ctx); err != nil || differ != 3 || looked != 8 {
		t.Errorf("changed: %d of %d, %v", differ, looked, err)
	}
	save.Memory, save.Tops, save.Tracker = nil, nil, "none"
	if _, err := p.Save(ctx, save); err == nil || !strings.Contains(err.Error(), "no such tracker") {
		t.Errorf("save that is refused: %v", err)
	}
	const want = "probe: idle\nrestored from [state plan base o1 o2 a1 b1 b2]\nrestored from [state plan a1 b1 b2 record stream]\nsaved to [state memory t1 t2]\n"
	if console, err := p.Console(ctx); err != nil || string(console) != want {
		t.Errorf("console %q, %v", console, err)
	}
}
