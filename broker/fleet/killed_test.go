package fleet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"thaw/broker/journal"
)

// The environment by which TestDaemonKilled starts its daemon: where the programs are,
// and where the journal.
const (
	killedBin     = "FLEET_KILLED_BIN"
	killedJournal = "FLEET_KILLED_JOURNAL"
)

// The daemon of TestDaemonKilled, in a process of its own: it has shells of both kinds,
// a machine that is checkpointed and rolled back all the time, and forks that come and
// go. It says which checkpoints are durable, until it is killed.
func TestDaemonToBeKilled(t *testing.T) {
	dir := os.Getenv(killedJournal)
	if dir == "" {
		return // only for TestDaemonKilled
	}
	r := newRigIn(t, dir, nil)
	id := r.template(small)
	m := r.restore(id)
	r.awaitShells(Rehearsed, 1)
	r.awaitShells(Generic, 2)
	fmt.Println("ready")
	forks := make(chan string)
	go func() {
		for id := range forks {
			if f, err := r.Restore(t.Context(), RestoreSpec{Snapshot: id}); err == nil {
				_ = f.Close(t.Context())
			}
		}
	}()
	for i := 0; ; i++ {
		cell(t, m, fmt.Sprintf("x = %d; y = bytes(%d << 16)", i, i%32))
		c := checkpoint(t, m)
		fmt.Println("durable", c.ID, i)
		select {
		case forks <- c.ID:
		default: // it makes one
		}
		if _, err := m.Rollback(t.Context(), c.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// A daemon that is killed with shells, rehearsed ones, machines and checkpoints under
// way leaves no process, and the next one takes away directories and cgroups; all that
// was durable can be restored.
func TestDaemonKilled(t *testing.T) {
	dir := t.TempDir()
	t.Run("template", func(t *testing.T) { newRig(t, nil).template(small) }) // the others find it
	for _, after := range []time.Duration{0, 70 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) { killDaemon(t, dir, after) })
	}
}

func killDaemon(t *testing.T, dir string, after time.Duration) {
	durable := runUntilKilled(t, dir, after)
	for end := time.Now().Add(10 * time.Second); len(vmms(t)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("processes %v go on without their daemon", vmms(t))
		}
	}
	j, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	left, err := j.Reclaim()
	j.Close()
	if err != nil || len(left) == 0 { // the machine; a shell may just have been taken, and the next not yet be there
		t.Errorf("reclaimed %d machines and shells: %v", len(left), err)
	}
	for _, l := range left {
		if l.Err != nil {
			t.Errorf("%s: %v", l.ID, l.Err)
		}
		if l.Cgroup == "" {
			continue
		}
		if _, err := os.Stat(l.Cgroup); err == nil {
			t.Errorf("cgroup %s is left", l.Cgroup)
		}
	}
	r := newRigIn(t, dir, nil)
	r.left(0)
	if work, err := os.ReadDir(filepath.Join(storeDir, "work")); err != nil || len(work) > 0 {
		t.Errorf("debris in the store: %v, %v", work, err)
	}
	for i, id := range durable {
		if i < len(durable)-2 {
			continue
		}
		if got := cell(t, r.restore(id), "print(x)"); got != fmt.Sprint(i) {
			t.Errorf("checkpoint %d has x = %s", i, got)
		}
	}
}

// runUntilKilled runs TestDaemonToBeKilled, kills it some time after its first
// durable checkpoint, and returns those that it told of.
func runUntilKilled(t *testing.T, dir string, after time.Duration) (durable []string) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestDaemonToBeKilled$")
	cmd.Env = append(os.Environ(), killedBin+"="+binDir, killedJournal+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() { _ = cmd.Process.Kill() }) // it may have ended: Wait tells
	defer kill()
	late := time.AfterFunc(time.Minute, kill)
	defer late.Stop()
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said = append(said, lines.Text())
		if w := strings.Fields(lines.Text()); len(w) == 3 && w[0] == "durable" {
			if durable = append(durable, w[1]); len(durable) == 1 {
				time.AfterFunc(after, kill)
			}
		}
	}
	_ = cmd.Wait() // the signal is asked for below
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL || len(durable) == 0 {
		t.Fatalf("daemon: %v\n%s", cmd.ProcessState, strings.Join(said, "\n"))
	}
	return durable
}

// vmms lists the processes that run this test's thaw-vmm.
func vmms(t *testing.T) (pids []string) {
	t.Helper()
	want, err := os.Stat(filepath.Join(binDir, "thaw-vmm"))
	if err != nil {
		t.Fatal(err)
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if have, err := os.Stat(l); err == nil && os.SameFile(have, want) {
			pids = append(pids, filepath.Base(filepath.Dir(l)))
		}
	}
	return pids
}
