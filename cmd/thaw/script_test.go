package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"thaw/broker/assets"
	"thaw/internal/hostinfo"
)

// The scripts in testdata/script drive real programs: each starts a daemon of its
// own on the real kernel and image. They need KVM, kernel and image; without them
// they are skipped, or fail when REQUIRE_KVM is set. THAW_TEST_KERNEL and
// THAW_TEST_IMAGES name others than those of the cache.

// programs is the folder of the built binaries.
var programs string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "thaw-test-")
	if err != nil {
		panic(err)
	}
	// Machines' user ids must be able to reach thaw-vmm's file system.
	os.Chmod(dir, 0o755)
	programs = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func TestScripts(t *testing.T) {
	kernel, images := requireMachine(t)
	build := exec.Command("go", "build", "-o", programs+"/", "thaw/cmd/thaw", "thaw/cmd/thawd", "thaw/cmd/thaw-vmm", "thaw/cmd/thaw-init",
		"thaw/cmd/thaw/testdata/init-exits", "thaw/cmd/thaw/testdata/init-sleeps")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", programs+":"+os.Getenv("PATH"))
			env.Setenv("BIN", programs)
			env.Setenv("KERNEL", kernel)
			env.Setenv("IMAGES", images)
			env.Setenv("THAW_HOST", "unix://"+filepath.Join(env.WorkDir, "d.sock"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"daemon": cmdDaemon, "stopdaemon": cmdStopDaemon, "killvmm": cmdKillVMM, "novmm": cmdNoVMM, "waitjob": cmdWaitJob, "cut": cmdCut,
		},
	})
}

// requireMachine says what to boot, or skips.
func requireMachine(t *testing.T) (kernel, images string) {
	t.Helper()
	miss := func(why string) {
		if os.Getenv("REQUIRE_KVM") != "" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	if hostinfo.Detect().Kind == hostinfo.None {
		miss("no usable KVM")
	}
	if os.Geteuid() != 0 {
		miss("not root")
	}
	kernel, images = os.Getenv("THAW_TEST_KERNEL"), os.Getenv("THAW_TEST_IMAGES")
	published, err := assets.Dir()
	if err != nil {
		t.Fatal(err)
	}
	if kernel == "" {
		kernel = filepath.Join(published, assets.KernelName("tuned"))
	}
	if images == "" {
		images = published
	}
	for _, path := range []string{kernel, filepath.Join(images, assets.ImageName("python")), filepath.Join(images, assets.ImageName("node"))} {
		if _, err := os.Stat(path); err != nil {
			miss(fmt.Sprintf("nothing to boot: %v (run `make kernel images`)", err))
		}
	}
	return kernel, images
}

// daemons are the scripts' daemons; scripts run in parallel.
var daemons sync.Map // *testscript.TestScript → *exec.Cmd

// cmdDaemon starts thawd with more flags and waits until it is ready; ! expects it
// to refuse. Its log is daemon.log.
func cmdDaemon(ts *testscript.TestScript, neg bool, args []string) {
	logPath := ts.MkAbs("daemon.log")
	log, err := os.Create(logPath)
	ts.Check(err)
	defer log.Close()
	all := append([]string{"--dev", "--socket", ts.MkAbs("d.sock"), "--state-dir", ts.MkAbs("state"),
		"--kernel", ts.Getenv("KERNEL"), "--images", ts.Getenv("IMAGES")}, args...)
	cmd := exec.Command(filepath.Join(programs, "thawd"), all...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), log, log
	ts.Check(cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	deadline := time.After(20 * time.Second)
	for {
		b, err := os.ReadFile(logPath)
		ts.Check(err)
		select {
		case <-exited:
			if !neg {
				ts.Fatalf("thawd ended:\n%s", b)
			}
			return
		case <-deadline:
			cmd.Process.Kill()
			ts.Fatalf("thawd is not ready:\n%s", b)
		case <-time.After(10 * time.Millisecond):
		}
		if strings.Contains(string(b), "msg=ready") {
			break
		}
	}
	if neg {
		cmd.Process.Kill()
		<-exited
		ts.Fatalf("thawd started")
	}
	daemons.Store(ts, cmd)
	ts.Defer(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			<-exited
		}
	})
}

func daemonOf(ts *testscript.TestScript) *exec.Cmd {
	cmd, ok := daemons.Load(ts)
	if !ok {
		ts.Fatalf("no daemon runs")
	}
	return cmd.(*exec.Cmd)
}

// cmdStopDaemon sends a signal (TERM or KILL) to the daemon and waits until it is gone.
func cmdStopDaemon(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stopdaemon TERM|KILL")
	}
	sig := map[string]syscall.Signal{"TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}[args[0]]
	p := daemonOf(ts).Process
	ts.Check(p.Signal(sig))
	for range 2000 {
		if syscall.Kill(p.Pid, 0) != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("the daemon goes on")
}

// machinesOf lists the thaw-vmm processes that are children of a process.
func machinesOf(ts *testscript.TestScript, parent int) []int {
	procs, err := filepath.Glob("/proc/[0-9]*/stat")
	ts.Check(err)
	var pids []int
	for _, p := range procs {
		b, err := os.ReadFile(p)
		if err != nil {
			continue // it ended
		}
		pid, rest, ok := strings.Cut(string(b), " (thaw-vmm) ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[1] != strconv.Itoa(parent) || fields[0] == "Z" {
			continue
		}
		n, err := strconv.Atoi(pid)
		ts.Check(err)
		pids = append(pids, n)
	}
	return pids
}

// cmdKillVMM kills the daemon's machines with SIGKILL.
func cmdKillVMM(ts *testscript.TestScript, neg bool, _ []string) {
	pids := machinesOf(ts, daemonOf(ts).Process.Pid)
	if len(pids) == 0 {
		ts.Fatalf("no thaw-vmm runs")
	}
	for _, pid := range pids {
		ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	}
}

// cmdNoVMM checks that no machine is left.
func cmdNoVMM(ts *testscript.TestScript, neg bool, _ []string) {
	var pids []int
	for range 200 {
		if pids = machinesOf(ts, daemonOf(ts).Process.Pid); len(pids) == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("machines are left: %v", pids)
}

// cmdWaitJob waits until `thaw jobs ls` shows a text.
func cmdWaitJob(ts *testscript.TestScript, neg bool, args []string) {
	var out []byte
	for range 3000 {
		cmd := exec.Command(filepath.Join(programs, "thaw"), "jobs", "ls")
		cmd.Env = []string{"THAW_HOST=" + ts.Getenv("THAW_HOST")}
		out, _ = cmd.CombinedOutput()
		if strings.Contains(string(out), args[0]) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("no job is %s:\n%s", args[0], out)
}

// cmdCut copies the first bytes of a file.
func cmdCut(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: cut BYTES FROM TO")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	b, err := os.ReadFile(ts.MkAbs(args[1]))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), b[:min(n, len(b))], 0o644))
}
