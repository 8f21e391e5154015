package vmmproc

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// daemonEnv makes the test binary a daemon that starts one probe, whose path it is, and sleeps.
const daemonEnv = "VMMPROC_TEST_DAEMON"

// TestDaemon is not a test but the daemon of TestDaemonDies.
func TestDaemon(t *testing.T) {
	probe := os.Getenv(daemonEnv)
	if probe == "" {
		return
	}
	probePath = probe
	p := start(t, testSpec(t, "idle"))
	fmt.Printf("pid %d\n", p.PID())
	time.Sleep(time.Hour)
}

// When the daemon is killed, its machines die with it, however it ended.
func TestDaemonDies(t *testing.T) {
	daemon := exec.Command("/proc/self/exe", "-test.run=^TestDaemon$")
	daemon.Env = append(os.Environ(), daemonEnv+"="+probePath)
	out, err := daemon.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	pid := 0
	for pid == 0 && lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, _ = strconv.Atoi(text)
		}
	}
	if pid == 0 {
		t.Error("daemon has started no machine")
	}
	daemon.Process.Kill()
	daemon.Wait()
	if pid == 0 {
		return
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		// Its new parent may not have reaped it yet.
		if unix.Kill(pid, 0) == unix.ESRCH || strings.HasPrefix(processState(pid), "Z") || processState(pid) == "unknown" {
			return
		}
		if time.Now().After(deadline) {
			unix.Kill(pid, unix.SIGKILL)
			t.Fatalf("process %d has outlived its daemon (state %s)", pid, processState(pid))
		}
	}
}

// The death of the thread that called Start is not the death of the daemon.
func TestCallingThreadDies(t *testing.T) {
	spec := testSpec(t, "idle")
	started := make(chan *Process, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		p, err := Start(context.Background(), spec)
		if err != nil {
			t.Error(err)
		}
		started <- p
	}()
	p := <-started
	if p == nil {
		return
	}
	defer p.Close()
	time.Sleep(100 * time.Millisecond)
	if _, err := p.Stats(context.Background()); err != nil {
		t.Errorf("machine has died with the calling thread: %v", err)
	}
}
