package vmmproc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
	"thaw/internal/unixfd"
	"thaw/vmm/spawner"
	"thaw/vmm/vmmproto"
)

// spawnerOf finds the spawner that this process has running for a binary.
func spawnerOf(t *testing.T, binary string) int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		text, err := os.ReadFile(path)
		if err != nil || !bytes.HasSuffix(text, []byte("\x00"+spawner.Argument+"\x00")) {
			continue
		}
		exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if exe == binary && readStatus(t, fmt.Sprintf("/proc/%d/status", pid))["PPid"] == fmt.Sprint(os.Getpid()) {
			return pid
		}
	}
	t.Fatalf("no spawner of %s", binary)
	return 0
}

// Machines outlive their spawner, and another takes its place.
func TestSpawnerDies(t *testing.T) {
	first := start(t, testSpec(t, "idle"))
	pid := spawnerOf(t, probePath)
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := start(t, testSpec(t, "idle"))
	if now := spawnerOf(t, probePath); now == pid {
		t.Errorf("spawner %d is still there", pid)
	}
	for _, p := range []*Process{first, second} {
		if _, err := p.Stats(context.Background()); err != nil {
			t.Error(err)
		}
		if parent := readStatus(t, fmt.Sprintf("/proc/%d/status", p.PID()))["PPid"]; parent != fmt.Sprint(os.Getpid()) {
			t.Errorf("process %d has parent %s", p.PID(), parent)
		}
	}
}

// Of a process that its cgroup does not take there is an error and nothing else, and the spawner serves the others on.
func TestCgroupGone(t *testing.T) {
	first := start(t, testSpec(t, "idle"))
	pid := spawnerOf(t, probePath)
	spec := testSpec(t, "idle")
	spec.Cgroup = needCgroup(t)
	if err := os.Remove(spec.Cgroup.Name()); err != nil {
		t.Fatal(err)
	}
	p, err := Start(context.Background(), spec)
	if !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.ENOENT) { // by the place where the kernel finds it
		t.Errorf("error %v, want ENODEV or ENOENT", err)
	}
	if err == nil {
		p.Close()
	}
	start(t, testSpec(t, "idle"))
	if now := spawnerOf(t, probePath); now != pid {
		t.Errorf("spawner %d, was %d", now, pid)
	}
	if _, err := first.Stats(context.Background()); err != nil {
		t.Error(err)
	}
}

// A child that stands still before its exec keeps others waiting for a moment only, and is killed.
func TestChildStands(t *testing.T) {
	start(t, testSpec(t, "idle"))
	pid := spawnerOf(t, probePath)
	spec := testSpec(t, "idle")
	spec.Cgroup = frozenCgroup(t)
	spec.StartTimeout = time.Minute
	began := time.Now()
	frozen := make(chan error, 1)
	go func() {
		p, err := Start(context.Background(), spec)
		if err == nil {
			p.Close()
		}
		frozen <- err
	}()
	for read(t, spec.Cgroup.Name()+"/cgroup.procs") == "" {
		if time.Since(began) > 10*time.Second {
			t.Fatal("no process in the cgroup")
		}
		time.Sleep(time.Millisecond)
	}
	start(t, testSpec(t, "idle"))
	if took := time.Since(began); took > 8*time.Second { // 2 s, and what a busy host adds
		t.Errorf("the next start took %v", took)
	}
	var failed *StartError
	if err := <-frozen; !errors.As(err, &failed) || failed.Exit.Signal != unix.SIGKILL {
		t.Errorf("error %v, want the end by SIGKILL", err)
	}
	if now := spawnerOf(t, probePath); now != pid {
		t.Errorf("spawner %d, was %d", now, pid)
	}
}

// A process that is born where another fills the memory shares none with the spawner, which would die with it, and holds up
// nobody when it stands still before its exec.
func TestCopied(t *testing.T) {
	start(t, testSpec(t, "idle"))
	maker := spawnerOf(t, probePath)
	for _, copied := range []bool{false, true} {
		t.Run(fmt.Sprint(copied), func(t *testing.T) {
			spec := testSpec(t, "idle")
			spec.Cgroup = frozenCgroup(t)
			ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			defer theirs.Close()
			c, err := spawn(&spec, copied, theirs)
			if err != nil {
				t.Fatal(err)
			}
			const kcmpVM = 1 // linux/kcmp.h
			differs, _, errno := unix.Syscall6(unix.SYS_KCMP, uintptr(c.pid), uintptr(maker), kcmpVM, 0, 0, 0)
			if copied {
				began := time.Now()
				start(t, testSpec(t, "idle"))
				if took := time.Since(began); took > 1500*time.Millisecond { // 2 s, had it waited
					t.Errorf("the next start took %v", took)
				}
			}
			if err := unix.Kill(c.pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
			<-c.done
			c.pidfd.Close()
			c.stderr.Close()
			switch {
			case errno == unix.ENOSYS:
				kvmtest.Unavailable(t, "no kcmp(2) in this kernel")
			case errno != 0:
				t.Error(errno)
			case copied != (differs != 0):
				t.Errorf("copied %v, but kcmp says %d", copied, differs)
			}
		})
	}
}

// A spawner that is only late is not given up for another, which would start a second process with the same files; what it
// starts then does not go on.
func TestSpawnerLate(t *testing.T) {
	start(t, testSpec(t, "idle"))
	pid := spawnerOf(t, probePath)
	m, err := spawners.get(probePath)
	if err != nil {
		t.Fatal(err)
	}
	defer spawners.put(m)
	m.asking.Lock()
	m.patience = 100 * time.Millisecond
	m.asking.Unlock()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p, err := Start(context.Background(), testSpec(t, "idle"))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error %v, want the deadline's", err)
	}
	if err == nil {
		p.Close()
	}
	if now := spawnerOf(t, probePath); now != pid {
		t.Errorf("spawner %d was started beside %d", now, pid)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil { // before it has made anything
		t.Fatal(err)
	}
	start(t, testSpec(t, "idle"))
}

// Each process has a network namespace to itself, with no device that is up and of which it is not the owner; one that ended
// leaves its own to the next.
func TestNetworks(t *testing.T) {
	network := func(p *Process) uint64 {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.PID()))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var here unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &here); err != nil {
			t.Fatal(err)
		}
		owner, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_USERNS)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(owner)
		var theirs, ours unix.Stat_t
		if err := errors.Join(unix.Fstat(owner, &theirs), unix.Stat("/proc/self/ns/user", &ours)); err != nil {
			t.Fatal(err)
		}
		if theirs.Ino != ours.Ino {
			t.Errorf("process %d: network namespace is of user namespace %d, want %d", p.PID(), theirs.Ino, ours.Ino)
		}
		if routes := read(t, fmt.Sprintf("/proc/%d/net/fib_trie", p.PID())); routes != "" {
			t.Errorf("process %d has addresses:\n%s", p.PID(), routes)
		}
		return here.Ino
	}
	first, second := start(t, testSpec(t, "idle")), start(t, testSpec(t, "idle"))
	a, b := network(first), network(second)
	if a == b {
		t.Errorf("two processes are in network namespace %d", a)
	}
	// The copy of the spawner's empty root is each one's own.
	mounts := map[string]bool{}
	for _, p := range []*Process{first, second} {
		link, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", p.PID()))
		if err != nil || mounts[link] {
			t.Errorf("two processes are in mount namespace %s (%v)", link, err)
		}
		mounts[link] = true
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, fourth := start(t, testSpec(t, "idle")), start(t, testSpec(t, "idle"))
	if c := network(third); c != a {
		t.Errorf("network namespaces %d and %d, then %d: the first was free", a, b, c)
	}
	if d := network(fourth); d == a || d == b {
		t.Errorf("network namespaces %d and %d are in use, and one is used again", a, b)
	}
}

// A program that was started without the first half of the jail does not go on with the second.
func TestUnborn(t *testing.T) {
	spec := testSpec(t, "idle")
	message, files, err := spec.message()
	if err != nil {
		t.Fatal(err)
	}
	packet, err := vmmproto.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	defer theirs.Close()
	if err := unixfd.Send(ours, packet, files...); err != nil {
		t.Fatal(err)
	}
	// Namespaces and a process id of 1, but capabilities and the host's root.
	cmd := &exec.Cmd{
		Path: probePath, Args: []string{"thaw-vmm"}, Env: spawner.Environment(), ExtraFiles: []*os.File{theirs},
		SysProcAttr: &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS},
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	buf := make([]byte, vmmproto.MaxMessage)
	ours.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, _, err := unixfd.Recv(ours, buf, 0)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := vmmproto.DecodeFromVMM(buf[:n])
	if err != nil {
		t.Fatal(err)
	}
	if f, ok := answer.(*vmmproto.Failed); !ok || f.Stage != "jail" || !strings.Contains(f.Detail, "check birth") {
		t.Errorf("answer %+v", answer)
	}
}

// A thaw-vmm of another build says that the daemon is none of its own, in place of taking one field for another.
func TestOtherProtocol(t *testing.T) {
	spec := testSpec(t, "idle")
	spec.setDefaults()
	message, files, err := spec.message()
	if err != nil {
		t.Fatal(err)
	}
	packet, err := vmmproto.Encode(message)
	if err != nil {
		t.Fatal(err)
	}
	packet[1+len(vmmproto.KindStart)]++ // after the kind and its length
	p, err := newProcess(spec, packet, files, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	go func() { p.stderr.drain(p.child.stderr); close(p.drained) }()
	go p.supervise()
	go func() { p.readControl(); close(p.read) }()
	defer p.Close()
	want := fmt.Sprintf("protocol %d is wanted, %d came", vmmproto.Protocol, vmmproto.Protocol+1)
	if e := end(t, p); e.Reason != Crashed || !strings.Contains(e.Detail, want) {
		t.Errorf("ended %s: %q, want %q", e.Reason, e.Detail, want)
	}
}
