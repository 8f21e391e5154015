package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"thaw/api"
	"thaw/vmm/spawner"
)

// startWait is how long a daemon or a machine may take to run, in the lab too.
const startWait = 2 * time.Minute

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
		"--kernel", ts.Getenv("KERNEL"), "--images", ts.Getenv("IMAGES"), "--templates", ts.Getenv("TEMPLATES")}, args...)
	cmd := exec.Command(filepath.Join(ts.Getenv("BIN"), "thawd"), all...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), log, log
	ts.Check(cmd.Start())
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	deadline := time.After(startWait)
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
		// The process that machines are born of is none.
		if args, err := os.ReadFile(filepath.Join(filepath.Dir(p), "cmdline")); err != nil || bytes.Contains(args, []byte("\x00"+spawner.Argument+"\x00")) {
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

// cmdNoVMM checks that no machine is left, but for the shells that wait for one.
func cmdNoVMM(ts *testscript.TestScript, neg bool, _ []string) {
	var pids []int
	ready := 0
	for range 500 { // shells come while the host is idle
		pids, ready = machinesOf(ts, daemonOf(ts).Process.Pid), waitingShells(ts)
		if len(pids) == ready {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("machines are left: %v, of which %d are shells that wait", pids, ready)
}

// waitingShells is how many machines the daemon has ready for jobs to come.
func waitingShells(ts *testscript.TestScript) int {
	cmd := exec.Command(filepath.Join(ts.Getenv("BIN"), "thaw"), "info", "--json")
	cmd.Env = []string{"THAW_HOST=" + ts.Getenv("THAW_HOST")}
	out, err := cmd.Output()
	ts.Check(err)
	var info api.Info
	ts.Check(json.Unmarshal(out, &info))
	n := 0
	if info.Templates != nil {
		for _, s := range info.Templates.Shells {
			n += s.Ready
		}
	}
	return n
}

// cmdWaitJob waits until `thaw jobs ls` shows a text.
func cmdWaitJob(ts *testscript.TestScript, neg bool, args []string) {
	var out []byte
	for deadline := time.Now().Add(startWait); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		cmd := exec.Command(filepath.Join(ts.Getenv("BIN"), "thaw"), "jobs", "ls")
		cmd.Env = []string{"THAW_HOST=" + ts.Getenv("THAW_HOST")}
		out, _ = cmd.CombinedOutput()
		if strings.Contains(string(out), args[0]) {
			return
		}
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

// cmdInit writes a guest init that ends at once ("exits": the kernel panics) or
// says something and never becomes ready ("sleeps").
func cmdInit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: init exits|sleeps FILE")
	}
	const message = "I will never be ready\n"
	code, ok := map[string]string{
		// mov eax, 60; xor edi, edi; syscall: exit(0)
		"exits": "\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05",
		// mov eax, 1; mov edi, eax; lea rsi, [rip+16]; mov edx, len; syscall: write(1, message);
		// mov eax, 34; syscall: pause(); jmp to itself
		"sleeps": "\xb8\x01\x00\x00\x00\x89\xc7\x48\x8d\x35\x10\x00\x00\x00\xba" + string(rune(len(message))) + "\x00\x00\x00\x0f\x05" +
			"\xb8\x22\x00\x00\x00\x0f\x05\xeb\xf7" + message,
	}[args[0]]
	if !ok {
		ts.Fatalf("there is no init that %s", args[0])
	}
	const base, headers = 0x400000, 64 + 56
	le := binary.LittleEndian
	b := []byte("\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9))
	b = le.AppendUint16(b, uint16(elf.ET_EXEC))
	b = le.AppendUint16(b, uint16(elf.EM_X86_64))
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, base+headers) // entry
	b = le.AppendUint64(b, 64)           // program headers
	b = le.AppendUint64(b, 0)            // no sections
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{64, 56, 1, 64, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	b = le.AppendUint32(b, uint32(elf.PT_LOAD))
	b = le.AppendUint32(b, uint32(elf.PF_R|elf.PF_X))
	for _, v := range []uint64{0, base, base, uint64(headers + len(code)), uint64(headers + len(code)), 0x1000} {
		b = le.AppendUint64(b, v)
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), append(b, code...), 0o755))
}
