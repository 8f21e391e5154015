package vmmproc

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

// What the jail should stop kills the process with SIGSYS, and is reported as such.
func TestForbiddenCalls(t *testing.T) {
	for _, deed := range []string{
		"open", "openat", "socket inet", "socket unix", "socketpair", "execve", "ptrace", "mount", "kill", "tgkill other", "unshare",
		"setuid", "bpf", "io_uring", "memfd", "prctl", "fork", "truncate", "mmap exec", "ioctl", "fallocate grow", "fallocate past the end", "fcntl owner", "x32",
	} {
		t.Run(deed, func(t *testing.T) {
			t.Parallel()
			e := end(t, start(t, testSpec(t, deed)))
			if e.Reason != SeccompViolation || e.Signal != unix.SIGSYS {
				t.Errorf("got %+v", e)
			}
		})
	}
}

// The jail as the kernel sees it, in every thread.
func TestJailFromOutside(t *testing.T) {
	spec := testSpec(t, "idle")
	cgroup := testCgroup(t)
	spec.Cgroup = cgroup
	p := start(t, spec)
	proc := fmt.Sprintf("/proc/%d", p.PID())

	tasks, err := filepath.Glob(proc + "/task/*")
	if err != nil || len(tasks) < 2 {
		t.Fatalf("threads: %v, %v", tasks, err)
	}
	slacks := map[string]int{}
	for _, task := range tasks {
		status := readStatus(t, task+"/status")
		for key, want := range map[string]string{
			"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000",
			"CapBnd": "0000000000000000", "CapAmb": "0000000000000000",
			"NoNewPrivs": "1", "Seccomp": "2", "Seccomp_filters": "1",
			"Uid": fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d", slotUID), "Gid": fmt.Sprintf("%d\t%[1]d\t%[1]d\t%[1]d", slotUID), "Groups": "",
			"Name": "thaw-vmm",
		} {
			if got := status[key]; got != want {
				t.Errorf("%s: %s is %q, want %q", task, key, got, want)
			}
		}
		slacks[strings.TrimSpace(read(t, "/proc/"+filepath.Base(task)+"/timerslack_ns"))]++
		if pids := strings.Fields(status["NSpid"]); len(pids) != 2 {
			t.Errorf("%s: NSpid %q", task, status["NSpid"])
		}
	}

	// The Go runtime's, which watches the others, and those that happen to have its slack.
	if slacks["4000000"] == 0 || slacks["250000"] == 0 || slacks["4000000"]+slacks["250000"] != len(tasks) {
		t.Errorf("timer slacks of %d threads: %v", len(tasks), slacks)
	}

	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts"} {
		ours, _ := os.Readlink("/proc/self/ns/" + ns)
		theirs, err := os.Readlink(proc + "/ns/" + ns)
		if err != nil || ours == theirs {
			t.Errorf("%s namespace: ours %s, theirs %s, %v", ns, ours, theirs, err)
		}
	}
	for _, m := range []string{"uid_map", "gid_map"} {
		if got := strings.Fields(read(t, proc+"/"+m)); strings.Join(got, " ") != fmt.Sprintf("0 %d 1", slotUID) {
			t.Errorf("%s is %q", m, got)
		}
	}
	for _, dir := range []string{"/root", "/cwd", "/root/../.."} {
		if entries, err := os.ReadDir(proc + dir); err != nil || len(entries) != 0 {
			t.Errorf("%s: %v, %v; want it empty", dir, entries, err)
		}
	}
	if mounts := strings.Split(strings.TrimSpace(read(t, proc+"/mountinfo")), "\n"); len(mounts) != 1 ||
		!strings.Contains(mounts[0], " / / ro,nosuid,nodev,noexec") {
		t.Errorf("mounts: %q", mounts)
	}
	if links, err := os.ReadDir(proc + "/net/dev_snmp6"); err == nil && len(links) > 1 {
		t.Errorf("network interfaces: %v", links)
	}
	if got := strings.ReplaceAll(read(t, proc+"/environ"), "\x00", " "); !strings.HasPrefix(got, "GOMAXPROCS=") || len(strings.Fields(got)) != 3 {
		t.Errorf("environment: %q", got)
	}
	if info, err := os.Stat(proc + "/status"); err != nil || info.Sys() == nil {
		t.Errorf("status: %v", err)
	}
	limits := read(t, proc+"/limits")
	for _, want := range []string{"Max core file size        0 ", "Max open files            4096 ", "Max file size             4194304 "} {
		if !strings.Contains(limits, want) {
			t.Errorf("limits lack %q:\n%s", want, limits)
		}
	}
	if cgroup != nil {
		if procs := strings.Fields(read(t, cgroup.Name()+"/cgroup.procs")); len(procs) != 1 || procs[0] != fmt.Sprint(p.PID()) {
			t.Errorf("cgroup has %v, want %d", procs, p.PID())
		}
	}
	checkDescriptors(t, proc)
}

// checkDescriptors looks for anything that the child was not given.
func checkDescriptors(t *testing.T, proc string) {
	t.Helper()
	fds, err := os.ReadDir(proc + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"/dev/null", "pipe:", "socket:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]", "/memfd:memory", "/memfd:disk"}
next:
	for _, fd := range fds {
		target, err := os.Readlink(proc + "/fd/" + fd.Name())
		if err != nil {
			t.Error(err)
		}
		for _, prefix := range allowed {
			if strings.HasPrefix(target, prefix) {
				continue next
			}
		}
		t.Errorf("descriptor %s is %s", fd.Name(), target)
	}
}

// needCgroup is testCgroup for a test that is nothing without one.
func needCgroup(t *testing.T) *os.File {
	t.Helper()
	cgroup := testCgroup(t)
	if cgroup == nil {
		kvmtest.Unavailable(t, "no cgroup v2 to make a folder in")
	}
	return cgroup
}

// frozenCgroup is one in which processes stand still from their birth.
func frozenCgroup(t *testing.T) *os.File {
	t.Helper()
	cgroup := needCgroup(t)
	if err := os.WriteFile(cgroup.Name()+"/cgroup.freeze", []byte("1"), 0); err != nil {
		kvmtest.Unavailable(t, "no freezer: %v", err)
	}
	return cgroup
}

// testCgroup makes a cgroup, or returns nil where the host has no cgroup v2.
func testCgroup(t *testing.T) *os.File {
	t.Helper()
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(root + "/cgroup.controllers"); err != nil {
			continue
		}
		dir, err := os.MkdirTemp(root, "vmmproc-test-")
		if err != nil {
			t.Logf("no cgroup: %v", err)
			return nil
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			f.Close()
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		})
		return f
	}
	return nil
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readStatus(t testing.TB, path string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	for line := range strings.Lines(read(t, path)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			fields[key] = strings.TrimSpace(value)
		}
	}
	return fields
}
