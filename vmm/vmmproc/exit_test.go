package vmmproc

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestEndings(t *testing.T) {
	for _, tc := range []struct {
		deed   string
		want   Reason
		detail string // part of it
	}{
		{"poweroff", Poweroff, ""},
		{"busy", Poweroff, "<nil>"},
		{"error", Internal, "vmm: guest memory: bad?thing"},
		{"panic", Crashed, "panic: probe: asked to panic"},
		{"exit 7", Crashed, "exit code 7"},
		{"garbage", ProtocolError, "invalid message"},
		{"oversized", ProtocolError, "longer than the buffer"},
		{"wrong direction", ProtocolError, "does not come from this side"},
		{"unasked reply", ProtocolError, "which nobody made"},
		{"started twice", ProtocolError, "started twice"},
		{"descriptor", ProtocolError, "too many descriptors"},
	} {
		t.Run(tc.deed, func(t *testing.T) {
			t.Parallel()
			e := end(t, start(t, testSpec(t, tc.deed)))
			if e.Reason != tc.want || !strings.Contains(e.Detail, tc.detail) {
				t.Errorf("got %+v, want %s %q", e, tc.want, tc.detail)
			}
		})
	}
}

// A process that closes its socket but lives on is given a grace, then killed.
func TestClosedSocket(t *testing.T) {
	for _, deed := range []string{"empty packet", "close socket"} {
		t.Run(deed, func(t *testing.T) {
			t.Parallel()
			e := end(t, start(t, testSpec(t, deed)))
			// With its socket closed the probe's own reader may notice first, and end the process.
			if e.Reason != ProtocolError && !(deed == "close socket" && e.Reason == Crashed) {
				t.Errorf("got %+v", e)
			}
		})
	}
}

func TestFloodOfConnects(t *testing.T) {
	spec := testSpec(t, "flood of connects")
	release := make(chan struct{})
	defer close(release)
	spec.Connect = func(uint32) (*os.File, error) { <-release; return nil, errors.New("no") }
	e := end(t, start(t, spec))
	if e.Reason != ProtocolError || !strings.Contains(e.Detail, "connect requests at a time") {
		t.Errorf("got %+v", e)
	}
}

// A guest that dials ports where nothing listens, again and again, costs the daemon little.
func TestStormOfConnects(t *testing.T) {
	e := end(t, start(t, testSpec(t, "storm of connects")))
	n, err := strconv.Atoi(e.Detail)
	if e.Reason != Poweroff || err != nil || n == 0 || n > 3200 {
		t.Errorf("%+v: %d requests in half a second", e, n)
	}
}

// Requests whose answers are not read count as outstanding too.
func TestConnectsWithoutReading(t *testing.T) {
	spec := testSpec(t, "connects without reading")
	p := start(t, spec)
	go p.Stats(t.Context())
	e := end(t, p)
	if e.Reason != ProtocolError || !strings.Contains(e.Detail, "connect requests at a time") {
		t.Errorf("got %+v", e)
	}
}

func TestPanicKeepsTraceAndConsole(t *testing.T) {
	spec := testSpec(t, "echo")
	spec.PingEvery = 5 * time.Millisecond
	release := make(chan struct{})
	spec.Connect = func(uint32) (*os.File, error) { <-release; return nil, errors.New("no") }
	p := start(t, spec)
	// The console's tail comes with a pong, so it is there although the process had no chance to send it at its end.
	for deadline := time.Now().Add(10 * time.Second); ; {
		p.mu.Lock()
		got := string(p.console)
		p.mu.Unlock()
		if strings.Contains(got, "probe: echo") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no console by ping")
		}
		time.Sleep(time.Millisecond)
	}
	unix.Kill(p.PID(), unix.SIGKILL)
	close(release)
	if e := end(t, p); e.Reason != Signalled || !strings.Contains(string(e.Console), "probe: echo") {
		t.Errorf("got %+v (console %q)", e, e.Console)
	}

	e := end(t, start(t, testSpec(t, "panic")))
	if !strings.Contains(e.Stderr, "goroutine ") || e.Code != 2 {
		t.Errorf("no trace of the panic: %+v", e)
	}
}

func TestKillHangAndSignals(t *testing.T) {
	t.Run("kill", func(t *testing.T) {
		t.Parallel()
		p := start(t, testSpec(t, "idle"))
		p.Kill()
		if e := end(t, p); e.Reason != Killed || e.Signal != unix.SIGKILL {
			t.Errorf("got %+v", e)
		}
	})
	t.Run("killed from outside", func(t *testing.T) {
		t.Parallel()
		p := start(t, testSpec(t, "idle"))
		unix.Kill(p.PID(), unix.SIGKILL)
		if e := end(t, p); e.Reason != Signalled || e.Signal != unix.SIGKILL || !strings.Contains(e.Detail, "did not send") {
			t.Errorf("got %+v", e)
		}
	})
	t.Run("hang", func(t *testing.T) {
		t.Parallel()
		spec := testSpec(t, "idle")
		spec.PingEvery, spec.PingTimeout = 10*time.Millisecond, 300*time.Millisecond
		p := start(t, spec)
		unix.Kill(p.PID(), unix.SIGSTOP)
		if e := end(t, p); e.Reason != Hung || !strings.Contains(e.Detail, "T (stopped)") {
			t.Errorf("got %+v", e)
		}
	})
	t.Run("stop and continue", func(t *testing.T) {
		t.Parallel()
		spec := testSpec(t, "idle")
		spec.PingEvery = 10 * time.Millisecond
		p := start(t, spec)
		for range 3 {
			unix.Kill(p.PID(), unix.SIGSTOP)
			time.Sleep(30 * time.Millisecond)
			unix.Kill(p.PID(), unix.SIGCONT)
			if _, err := p.Stats(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
	})
	t.Run("flood of stderr", func(t *testing.T) {
		t.Parallel()
		p := start(t, testSpec(t, "flood"))
		time.Sleep(50 * time.Millisecond)
		// Whether or not the flood has been written, the process answers and its memory here is bounded.
		if _, err := p.Console(context.Background()); err != nil {
			t.Fatal(err)
		}
		p.Kill()
		if e := end(t, p); e.Reason != Killed || len(e.Stderr) == 0 || len(e.Stderr) > stderrKept {
			t.Errorf("got %s, %d bytes of stderr", e.Reason, len(e.Stderr))
		}
	})
	t.Run("close while running", func(t *testing.T) {
		t.Parallel()
		p := start(t, testSpec(t, "idle"))
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if e := end(t, p); e.Reason != Killed {
			t.Errorf("got %+v", e)
		}
		if err := unix.Kill(p.PID(), 0); err != unix.ESRCH {
			t.Errorf("process is still there: %v", err)
		}
	})
}

func TestStartFailures(t *testing.T) {
	t.Run("no machine", func(t *testing.T) {
		t.Parallel()
		failed := failStart(t, testSpec(t, "no machine"))
		if failed.Stage != "machine" || failed.Exit.Reason != StartFailed || failed.Exit.Detail != "kvm: create vm: no such device?[31m" {
			t.Errorf("got %+v", failed)
		}
	})
	t.Run("panic", func(t *testing.T) {
		t.Parallel()
		if failed := failStart(t, testSpec(t, "panic at start")); failed.Exit.Reason != Crashed ||
			!strings.Contains(failed.Error(), "asked to panic at start") {
			t.Errorf("got %+v", failed)
		}
	})
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		spec := testSpec(t, "silent start")
		spec.StartTimeout = 200 * time.Millisecond
		if failed := failStart(t, spec); failed.Exit.Reason != StartTimeout {
			t.Errorf("got %+v", failed)
		}
	})
	t.Run("context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := Start(ctx, testSpec(t, "silent start"))
		var failed *StartError
		if !errors.As(err, &failed) || failed.Exit.Reason != Killed || !strings.Contains(failed.Exit.Detail, "deadline") {
			t.Errorf("got %v", err)
		}
	})
	for name, change := range map[string]func(*Spec){
		"no kernel":      func(s *Spec) { s.Kernel = nil },
		"missing layer":  func(s *Spec) { s.Disks[0].Layers[0] = nil },
		"no layers":      func(s *Spec) { s.Disks[0].Layers = nil },
		"no vcpus":       func(s *Spec) { s.VCPUs = 0 },
		"no binary":      func(s *Spec) { s.Binary = "/nonexistent" },
		"not executable": func(s *Spec) { s.Binary = "/etc/shadow" },
		"not a program":  func(s *Spec) { s.Binary = textFile(t) },
		"a folder":       func(s *Spec) { s.Binary = "/etc" },
		"root":           func(s *Spec) { s.UID = 0 },
		"no cgroup":      func(s *Spec) { s.Dev = false },
	} {
		t.Run(name, func(t *testing.T) {
			spec := testSpec(t, "idle")
			change(&spec)
			p, err := Start(context.Background(), spec)
			if err == nil {
				p.Close()
				t.Fatal("no error")
			}
			if isolation := name == "root" || name == "no cgroup"; errors.Is(err, ErrNotIsolated) != isolation {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestStartedByHand(t *testing.T) {
	for _, path := range []string{probePath, thawVMMPath} {
		p, err := os.StartProcess(path, []string{path}, &os.ProcAttr{Files: []*os.File{nil, nil, nil}})
		if err != nil {
			t.Fatal(err)
		}
		state, err := p.Wait()
		if err != nil || state.Sys().(syscall.WaitStatus).ExitStatus() != 2 {
			t.Errorf("%s: %v, %v; want exit code 2", path, state, err)
		}
	}
}

// textFile is executable by its mode only.
func textFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(path, []byte("text\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
