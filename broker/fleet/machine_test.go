package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentclient"
	"thaw/guestinit/agentproto"
	"thaw/snapshot/store"
)

// cell runs Python in the machine's warm interpreter.
func cell(t testing.TB, m *Machine, source string) string {
	t.Helper()
	id, ok := m.Warm("python")
	if !ok {
		t.Fatal("no warm Python")
	}
	var out bytes.Buffer
	res, err := m.Agent().Code(t.Context(), agentproto.CodeRequest{ExecID: id, Source: source}, agentclient.ExecIO{Stdout: &out, Stderr: &out})
	if err != nil || res.Status != agentproto.CellOK {
		t.Fatalf("%s: %s, %v: %s", source, res.Status, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

// checkpoint makes one and waits until it is durable.
func checkpoint(t testing.TB, m *Machine) *Checkpoint {
	t.Helper()
	c, err := m.Checkpoint(t.Context(), CheckpointSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Durable(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestSizes(t *testing.T) {
	for _, c := range []Class{{MemoryMiB: 512, VCPUs: 2}, {MemoryMiB: 3072, VCPUs: 1}} {
		t.Run(c.String(), func(t *testing.T) {
			r := newRig(t, func(c *Config) { c.Pool.Generic = 1 })
			id := r.template(c)
			r.awaitShells(Rehearsed, 1)
			m := r.restore(id)
			if got := cell(t, m, "import os; x = 1; print(os.cpu_count())"); got != string('0'+rune(c.VCPUs)) {
				t.Errorf("%s processors", got)
			}
			one := checkpoint(t, m)
			cell(t, m, "x = os.urandom(1 << 20) * 40")
			two := checkpoint(t, m)
			if two.Record.Pages < 5000 {
				t.Errorf("only %d pages saved", two.Record.Pages)
			}
			if _, err := m.Rollback(t.Context(), one.ID); err != nil {
				t.Fatal(err)
			}
			if got := cell(t, m, "print(x)"); got != "1" {
				t.Errorf("x is %s", got)
			}
			fork := r.restore(two.ID)
			if got := cell(t, fork, "print(len(x))"); got != "41943040" {
				t.Errorf("x has %s bytes", got)
			}
		})
	}
}

// A machine of a rehearsed shell shows nothing of the rehearsal: no file, process id,
// variable, time, number or generation. (TestRehearsedShellIsTheTemplate compares bytes.)
func TestNothingOfTheRehearsalIsLeft(t *testing.T) {
	r := newRig(t, nil)
	id := r.template(small)
	// The last process id too. The kernel may have started a thread of its own
	// meanwhile; a rehearsal starts more than that.
	const threads = 2
	seen, pids, drawn := map[Kind]string{}, map[Kind]int{}, map[string]bool{}
	up, took := map[Kind]time.Duration{}, map[Kind]time.Duration{}
	for _, kind := range []Kind{Rehearsed, Generic} {
		r.awaitShells(Rehearsed, 1)
		if kind == Generic {
			r.pool.Drop(id)
		}
		time.Sleep(2 * time.Second) // time for shells
		began := time.Now()
		m := r.restore(id)
		if m.Record().Shell != kind {
			t.Fatalf("shell is %s", m.Record().Shell)
		}
		seconds, err := time.ParseDuration(sh(t, m, "cut -d' ' -f1 /proc/uptime") + "s")
		if err != nil {
			t.Fatal(err)
		}
		up[kind], took[kind] = seconds, time.Since(began)
		seen[kind] = sh(t, m, "ls -A /workspace /tmp")
		if pids[kind], err = strconv.Atoi(sh(t, m, "cut -d' ' -f5 /proc/loadavg")); err != nil {
			t.Fatal(err)
		}
		if got := cell(t, m, "print(sorted(k for k in globals() if not k.startswith('_')))"); got != "[]" {
			t.Errorf("%s: globals %s", kind, got)
		}
		if got := cell(t, m, "print(int(open('/run/thaw/generation').read()))"); got != fmt.Sprint(m.Record().Generation) {
			t.Errorf("%s: generation %s, want %d", kind, got, m.Record().Generation)
		}
		drawn[cell(t, m, "import random; print(random.random())")] = true
	}
	if len(drawn) != len(seen) {
		t.Errorf("both drew %v", drawn)
	}
	if up[Rehearsed] > up[Generic]+took[Rehearsed] {
		t.Errorf("rehearsed is up for %s, %s after its start; generic for %s, %s after", up[Rehearsed], took[Rehearsed], up[Generic], took[Generic])
	}
	if d := pids[Rehearsed] - pids[Generic]; seen[Rehearsed] != seen[Generic] || d < -threads || d > threads {
		t.Errorf("rehearsed shows\n%s %d\ngeneric\n%s %d", seen[Rehearsed], pids[Rehearsed], seen[Generic], pids[Generic])
	}
}

func TestForksDiffer(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	source := "import random, uuid; print(random.random(), uuid.uuid4(), open('/proc/sys/kernel/random/uuid').read().strip())"
	cell(t, m, "import random; random.random()")
	forks, c, err := m.Fork(t.Context(), CheckpointSpec{}, []RestoreSpec{{Hostname: "a"}, {Hostname: "b"}})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, f := range append(forks, m) {
		for _, v := range strings.Fields(cell(t, f, source)) {
			if seen[v] {
				t.Errorf("%s twice", v)
			}
			seen[v] = true
		}
	}
	if a, b := sh(t, forks[0], "hostname; cat /etc/machine-id"), sh(t, forks[1], "hostname; cat /etc/machine-id"); a == b || !strings.HasPrefix(a, "a\n") {
		t.Errorf("%q and %q", a, b)
	}
	if forks[0].Snapshot() != c.ID || forks[0].Record().Generation == forks[1].Record().Generation {
		t.Errorf("records %+v and %+v", forks[0].Record(), forks[1].Record())
	}
}

// A fork that has nothing to do sleeps: none of its threads keeps a processor busy. A
// busy one is hardly ever seen asleep, however little of a processor it gets. One way
// to be kept awake is a word of KVM's to the guest that a restore loses.
func TestForkSleeps(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	cell(t, m, "x = 1")
	forks, _, err := m.Fork(t.Context(), CheckpointSpec{}, make([]RestoreSpec, 1))
	if err != nil {
		t.Fatal(err)
	}
	if line, code := try(t, forks[0], "grep 'Hypervisor callback' /proc/interrupts"); code == 0 {
		t.Errorf("KVM may tell the guest of pages that come later: %s", line)
	}
	const looks = 40
	running := map[string]int{}
	for range looks {
		time.Sleep(25 * time.Millisecond)
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", forks[0].Process().PID()))
		if err != nil || len(threads) == 0 {
			t.Fatalf("%d threads, %v", len(threads), err)
		}
		for _, path := range threads {
			b, _ := os.ReadFile(path) // of a thread that has ended: empty
			if _, after, _ := strings.Cut(string(b), ") "); strings.HasPrefix(after, "R") {
				running[path]++
			}
		}
	}
	for path, n := range running {
		if n > looks*3/4 {
			t.Errorf("%s ran in %d of %d looks", path, n, looks)
		}
	}
}

func TestPausedMachines(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	cell(t, m, "x = 5")
	if err := m.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // a second checkpoint finds the processes frozen already
		forks, _, err := m.Fork(t.Context(), CheckpointSpec{}, make([]RestoreSpec, 1))
		if err != nil {
			t.Fatal(err)
		}
		if got := cell(t, forks[0], "print(x)"); got != "5" {
			t.Errorf("fork has x = %s", got)
		}
	}
	if err := m.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := cell(t, m, "print(x)"); got != "5" {
		t.Errorf("x is %s", got)
	}
}

// Checkpoints that are asked for at the same time are made one after the other, and
// each is durable with its parent.
func TestManyCheckpoints(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	var wait sync.WaitGroup
	for range 3 {
		wait.Go(func() { checkpoint(t, m) })
	}
	wait.Wait()
	var all []*Checkpoint
	for i := range 24 {
		sh(t, m, "echo "+string('a'+rune(i))+" > /workspace/x")
		c, err := m.Checkpoint(t.Context(), CheckpointSpec{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	for _, i := range []int{23, 0, 12, 23, 7} {
		if _, err := m.Rollback(t.Context(), all[i].ID); err != nil {
			t.Fatal(err)
		}
		if got := sh(t, m, "cat /workspace/x"); got != string('a'+rune(i)) {
			t.Errorf("checkpoint %d holds %q", i, got)
		}
	}
	if _, err := all[23].Durable(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, r.restore(all[20].ID), "cat /workspace/x"); got != "u" {
		t.Errorf("restored: %q", got)
	}
}

// A daemon that starts anew finds templates and checkpoints in the store.
func TestAnotherDaemon(t *testing.T) {
	var template string
	var last *Checkpoint
	t.Run("first", func(t *testing.T) {
		r := newRig(t, nil)
		template = r.template(small)
		m := r.restore(template)
		cell(t, m, "x = 'kept'")
		for range 10 {
			sh(t, m, "date >> /workspace/dates")
			last = checkpoint(t, m)
		}
	})
	r := newRig(t, nil)
	if id := r.template(small); id != template {
		t.Errorf("template %s was built again as %s", template, id)
	}
	m := r.restore(last.ID)
	if got := cell(t, m, "print(x)") + sh(t, m, "wc -l < /workspace/dates"); got != "kept10" {
		t.Errorf("got %q", got)
	}
	if _, err := m.Rollback(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	if out, code := try(t, m, "cat /workspace/dates"); code == 0 {
		t.Errorf("the template has %s", out)
	}
}

func TestDeletedSnapshot(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	c := checkpoint(t, m)
	if err := r.cfg.Store.Delete(c.ID, false); !errors.Is(err, store.ErrInUse) {
		t.Errorf("a snapshot that a machine runs on was deleted: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.cfg.Store.Delete(c.ID, false); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Restore(t.Context(), RestoreSpec{Snapshot: c.ID}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("restored from what is gone: %v", err)
	}
}

func TestUnrelatedSnapshot(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	other := r.template(Class{MemoryMiB: 512, VCPUs: 2})
	if _, err := m.Rollback(t.Context(), other); !errors.Is(err, ErrUnrelated) {
		t.Errorf("got %v", err)
	}
	if got := sh(t, m, "echo alive"); got != "alive" {
		t.Errorf("got %q", got)
	}
}

// A guest that never answers is destroyed, and nothing is left of it.
func TestNoAcknowledgement(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Pool.Rehearsed = -1; c.AckTimeout = time.Nanosecond })
	id := r.template(small)
	r.awaitShells(Generic, 2)
	_, err := r.Restore(t.Context(), RestoreSpec{Snapshot: id})
	if !errors.Is(err, ErrNotAcknowledged) {
		t.Errorf("got %v", err)
	}
}

// A thaw-vmm that dies ends the operation under way, and the machine.
func TestKilledProcess(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	if err := unix.Kill(m.Process().PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Checkpoint(t.Context(), CheckpointSpec{}); err == nil {
		t.Error("a dead machine was saved")
	}
	<-m.Exited()
	if _, err := m.Rollback(t.Context(), m.Snapshot()); !errors.Is(err, ErrEnded) {
		t.Errorf("got %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestCloseDuringOperations(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			for {
				if _, err := m.Checkpoint(t.Context(), CheckpointSpec{}); err != nil {
					return
				}
			}
		})
	}
	time.Sleep(50 * time.Millisecond)
	if err := m.Close(t.Context()); err != nil {
		t.Error(err)
	}
	wait.Wait()
}

// A store that cannot take a checkpoint fails it, not the machine.
func TestStoreFails(t *testing.T) {
	r := newRig(t, nil)
	m := r.restore(r.template(small))
	parent := checkpoint(t, m)
	work := storeDir + "/work"
	if err := os.Rename(work, work+".gone"); err != nil {
		t.Fatal(err)
	}
	_, err := m.Checkpoint(t.Context(), CheckpointSpec{})
	if rerr := os.Rename(work+".gone", work); rerr != nil {
		t.Fatal(rerr)
	}
	if err == nil {
		t.Error("a checkpoint without a store")
	}
	if _, err := m.Rollback(t.Context(), parent.ID); err != nil {
		t.Error(err)
	}
}
