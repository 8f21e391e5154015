package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"thaw/broker/assets"
	"thaw/internal/hostinfo"
	"thaw/internal/kvmtest"
	"thaw/rootfs"
)

// talker answers with one set of counters after the other.
type talker struct {
	stats   []map[string]uint64
	console string
	err     error
}

func (w *talker) Stats(ctx context.Context) (map[string]uint64, error) {
	if ctx.Err() != nil || w.err != nil {
		return nil, errors.Join(ctx.Err(), w.err)
	}
	s := w.stats[0]
	w.stats = w.stats[1:]
	return s, nil
}

func (w *talker) Console(context.Context) ([]byte, error) { return []byte(w.console), w.err }

func TestDescribe(t *testing.T) {
	w := &talker{
		stats: []map[string]uint64{
			{"net0.rx": 5, "net0.tx": 7, "balloon0.pages": 9, "block0.reads": 0},
			{"net0.rx": 5, "net0.tx": 10, "balloon0.pages": 8, "block0.reads": 0},
		},
		console: "job 1\njob 2\n",
	}
	const want = `counters (1ms apart): balloon0.pages 8 -1, net0.rx 5, net0.tx 10 +3; console ends: "job 1\njob 2\n"`
	if got := describe(t.Context(), w, time.Millisecond); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := describe(t.Context(), &talker{err: errors.New("no answer")}, time.Millisecond); strings.Count(got, "no answer") != 2 {
		t.Errorf("a silent machine: %s", got)
	}
}

func TestLastWordsAreOfMachinesThatLive(t *testing.T) {
	ended := errors.New("ended")
	if err := LastWords(t.Context(), nil, ended); err != ended {
		t.Errorf("got %v", err)
	}
	if err := LastWords(t.Context(), nil, nil); err != nil {
		t.Errorf("got %v", err)
	}
	// The wait's context is over: questions are asked in another.
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	w := &talker{stats: []map[string]uint64{{"a": 1}, {"a": 2}}, console: "hello"}
	err := LastWords(ctx, w, fmt.Errorf("wait: %w", ctx.Err()))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "a 2 +1") || !strings.Contains(err.Error(), "hello") {
		t.Errorf("got %v", err)
	}
}

// A machine that does not end says so with its counters and its console.
func TestUntilEndTellsOfAStall(t *testing.T) {
	host := hostinfo.Detect()
	if host.Kind == hostinfo.None || os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "no usable KVM, or not root")
	}
	published, err := assets.Dir()
	if err != nil {
		t.Fatal(err)
	}
	kernel := filepath.Join(published, assets.KernelName("tuned"))
	if _, err := os.Stat(kernel); err != nil {
		kvmtest.Unavailable(t, "nothing to boot: %v (run `make kernel`)", err)
	}
	dir := t.TempDir()
	init, vmm := filepath.Join(dir, "init"), filepath.Join(dir, "thaw-vmm")
	if err := WriteTrivialInit(init); err != nil {
		t.Fatal(err)
	}
	initrd, err := rootfs.Initramfs(t.Context(), init, nil)
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", vmm, "./cmd/thaw-vmm")
	build.Dir, build.Env = "../..", append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	side := &Thaw{VMM: vmm, PVM: host.Kind == hostinfo.PVM}
	_, err = side.UntilEnd(ctx, Boot{Kernel: kernel, Initrd: initrd, VCPUs: 1, MemoryMiB: 256})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "exits.") || !strings.Contains(err.Error(), TrivialLine) {
		t.Errorf("got %v", err)
	}
}

func TestQEMUTellsOfAStall(t *testing.T) {
	program := filepath.Join(t.TempDir(), "qemu")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho booting\nexec sleep 60\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	q := &QEMU{Program: program}
	for name, wait := range map[string]func(context.Context) error{
		"end":  func(ctx context.Context) error { _, err := q.UntilEnd(ctx, Boot{}); return err },
		"line": func(ctx context.Context) error { _, err := q.UntilLine(ctx, Boot{}, "ready"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err := wait(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "booting") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
