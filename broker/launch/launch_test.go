package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker"
	"thaw/broker/journal"
	"thaw/vmm/vmmproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMachineExit(t *testing.T) {
	for reason, want := range map[vmmproc.Reason]broker.ExitReason{
		vmmproc.Poweroff: broker.ExitPoweroff, vmmproc.Reset: broker.ExitPoweroff, vmmproc.GuestPanic: broker.ExitPanic,
		vmmproc.TripleFault: broker.ExitPanic, vmmproc.Signalled: broker.ExitKilled, vmmproc.Killed: broker.ExitKilled,
		vmmproc.Hung: broker.ExitFailed, vmmproc.Crashed: broker.ExitFailed, vmmproc.SeccompViolation: broker.ExitFailed,
		vmmproc.ProtocolError: broker.ExitFailed, "something new": broker.ExitFailed,
	} {
		if got := machineExit(vmmproc.Exit{Reason: reason}); got.Reason != want {
			t.Errorf("%s: %s, want %s", reason, got.Reason, want)
		}
	}
}

func TestConsoleTextIsSafe(t *testing.T) {
	got := lastLines([]byte("one\x1b[2J\r\ntwo \xff\u202e\n" + strings.Repeat("é", 1000)))
	lines := strings.Split(got, "\n")
	if len(lines) != 3 || lines[0] != "one·[2J" || lines[1] != "two ··" || len(lines[2]) > maxLineBytes+len("…") {
		t.Errorf("%q", got)
	}
	if n := strings.Count(lastLines([]byte(strings.Repeat("x\n", 1000))), "\n") + 1; n != maxLines {
		t.Errorf("%d lines", n)
	}
}

func TestMergeEnv(t *testing.T) {
	got := mergeEnv([]string{"HOME=/workspace", "A=1"}, []string{"A=2=3", "B="})
	if fmt.Sprint(got) != "[A=2=3 B= HOME=/workspace]" {
		t.Errorf("%v", got)
	}
}

func TestGuestMemoryKeepsItsSize(t *testing.T) {
	f, err := guestMemory(4 * mib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(mib); !errors.Is(err, unix.EPERM) {
		t.Errorf("shrink: %v", err)
	}
	if err := f.Truncate(8 * mib); !errors.Is(err, unix.EPERM) {
		t.Errorf("grow: %v", err)
	}
}

func TestScratchDiskHasNoName(t *testing.T) {
	dir := t.TempDir()
	f, err := scratchDisk(dir, 64*mib)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if e, _ := os.ReadDir(dir); len(e) != 0 {
		t.Errorf("names: %v", e)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Size != 64*mib || st.Blocks != 0 {
		t.Errorf("size %d, blocks %d, %v", st.Size, st.Blocks, err)
	}
}

// fakeVMM answers one CONNECT as it is told to.
func fakeVMM(t *testing.T, answer func(net.Conn)) *vsockSocket {
	t.Helper()
	// Longer than a socket's path may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 120))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s, f, err := listenVsock(dir)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err == nil {
			answer(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done; s.close() })
	return s
}

func TestDial(t *testing.T) {
	s := fakeVMM(t, func(c net.Conn) {
		b := make([]byte, 64)
		n, _ := c.Read(b)
		fmt.Fprintf(c, "OK 7\n%s", b[:n])
	})
	c, err := s.dial(t.Context(), 1024)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	b := make([]byte, 64)
	if n, err := c.Read(b); err != nil || string(b[:n]) != "CONNECT 1024\n" {
		t.Errorf("stream gave %q, %v", b[:n], err)
	}
}

func TestDialFails(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"refused": func(c net.Conn) { fmt.Fprint(c, "NO\n") }, "endless": func(c net.Conn) { fmt.Fprint(c, strings.Repeat("x", 1000)) },
		"closed": func(net.Conn) {}, "silent": func(net.Conn) { time.Sleep(100 * time.Millisecond) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if c, err := fakeVMM(t, answer).dial(ctx, 1); err == nil {
			c.Close()
			t.Errorf("%s: connected", name)
		}
		cancel()
	}
}

func TestSlots(t *testing.T) {
	l := New(Config{})
	a, err := l.takeSlot()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := l.takeSlot()
	if a == b || a == 0 {
		t.Errorf("slots %d and %d", a, b)
	}
	l.freeSlot(a)
	if c, _ := l.takeSlot(); c != a {
		t.Errorf("slot %d is not used again", a)
	}
}

func TestCgroupLimits(t *testing.T) {
	root := t.TempDir()
	m := testMachine(t, root)
	f, err := m.makeCgroup()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if len(m.undo) != 1 || m.undo[0].do() != nil {
		t.Error("the cgroup is not given back")
	}
	if _, err := os.Stat(filepath.Join(root, cgroupParent, "job-x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// A daemon that is killed between making the cgroup and starting the process
// leaves one that the next daemon removes.
func TestCgroupIsInTheJournalFirst(t *testing.T) {
	root := t.TempDir()
	m := testMachine(t, root)
	f, err := m.makeCgroup()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	left, err := m.launcher.cfg.Journal.Reclaim()
	if err != nil || len(left) != 1 || left[0].Err != nil || left[0].Killed {
		t.Errorf("reclaimed %+v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(root, cgroupParent, "job-x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

// testMachine is one that is not started, on a hierarchy of cgroups at root: a
// folder, what is written is what counts.
func testMachine(t *testing.T, root string) *machine {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	if _, err := j.Create("job-x"); err != nil {
		t.Fatal(err)
	}
	m := &machine{launcher: New(Config{Journal: j}), spec: broker.LaunchSpec{ID: "job-x", VCPUs: 2, MemoryMiB: 640}}
	m.launcher.cfg.Host.Cgroup.Mount = root
	return m
}

func TestFailuresOfAStartHaveCodes(t *testing.T) {
	var e *api.Error
	if err := explain(errors.New("x")); !errors.As(err, &e) || e.Code != api.CodeMaterialise {
		t.Errorf("got %v", err)
	}
	for reason, want := range map[broker.ExitReason]api.Code{
		broker.ExitKilled: api.CodeVMMKilled, broker.ExitFailed: api.CodeVMMFailed, broker.ExitPanic: api.CodeGuestPanic, broker.ExitPoweroff: api.CodeGuestNotReady,
	} {
		if err := exitedEarly(broker.MachineExit{Reason: reason}); !errors.As(err, &e) || e.Code != want {
			t.Errorf("%s: %v", reason, err)
		}
	}
	start := &vmmproc.StartError{Stage: "machine", Exit: vmmproc.Exit{Reason: vmmproc.StartFailed, Detail: "too little memory"}}
	if err := startError(t.Context(), start); !errors.As(err, &e) || e.Code != api.CodeVMMStart || !strings.Contains(e.Cause, "too little memory") {
		t.Errorf("got %v", err)
	}
}
