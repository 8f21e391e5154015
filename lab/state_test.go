package lab

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLock(t *testing.T) {
	dir := t.TempDir()
	if held, err := lockHeld(dir); held || err != nil {
		t.Errorf("fresh folder: held %v, %v", held, err)
	}
	f, err := lockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := lockHeld(dir); !held || err != nil {
		t.Errorf("locked: held %v, %v", held, err)
	}
	if _, err := lockState(dir); !errors.Is(err, ErrRunning) {
		t.Errorf("second lock: %v, want ErrRunning", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if held, err := lockHeld(dir); held || err != nil {
		t.Errorf("closed: held %v, %v", held, err)
	}
}

func TestStatusOfAKilledSupervisor(t *testing.T) {
	dir := t.TempDir()
	if st, err := ReadStatus(dir); err != nil || st.State != StateDown {
		t.Errorf("no file: %+v, %v", st, err)
	}
	for _, c := range []struct{ wrote, want State }{
		{StateUp, StateDown}, {StateStarting, StateDown}, {StateFailed, StateFailed},
	} {
		if err := (Status{State: c.wrote, PID: 7, Restarts: 1}).write(dir); err != nil {
			t.Fatal(err)
		}
		st, err := ReadStatus(dir)
		if err != nil || st.State != c.want || st.Restarts != 1 {
			t.Errorf("wrote %s: %+v, %v", c.wrote, st, err)
		}
	}
	f, err := lockState(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := (Status{State: StateUp, PID: 7}).write(dir); err != nil {
		t.Fatal(err)
	}
	if st, err := ReadStatus(dir); err != nil || st.State != StateUp || st.PID != 7 {
		t.Errorf("living supervisor: %+v, %v", st, err)
	}
	if err := os.WriteFile(filepath.Join(dir, statusFile), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadStatus(dir); err == nil {
		t.Error("a cut status file is taken")
	}
}

func TestListenUnix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "s.sock")
	l, err := listenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listenUnix(path); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("in use: %v, want EADDRINUSE", err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	l, err = listenUnix(path)
	if err != nil {
		t.Fatalf("stale socket: %v", err)
	}
	defer l.Close()
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
}

func contains(err error, part string) bool { return strings.Contains(err.Error(), part) }

func TestErrorsCarryTheConsole(t *testing.T) {
	dir := t.TempDir()
	console := "[ 1.0] booting\r\n[ 2.0] Kernel panic - not syncing: test\r\n[ 2.1] trace\r\n"
	if err := os.WriteFile(filepath.Join(dir, consoleFile), []byte(console), 0o644); err != nil {
		t.Fatal(err)
	}
	err := withLogs(errKernelDied, dir)
	if !errors.Is(err, errKernelDied) {
		t.Error("the cause is lost")
	}
	if want := "lab: kernel died: Kernel panic - not syncing: test"; cause(err) != want {
		t.Errorf("cause %q, want %q", cause(err), want)
	}
	if !strings.Contains(err.Error(), "[ 2.1] trace") || strings.Contains(err.Error(), "\r") {
		t.Errorf("message %q", err)
	}
}

func TestFindFault(t *testing.T) {
	for in, want := range map[string]string{
		"":                                     "",
		"[ 1.0] fine\n":                        "",
		"[ 1.0] BUG: bad\n[ 1.1] Oops: 0003\n": "BUG: bad",
		"labinit: mount proc: no\nKernel panic\n": "labinit: mount proc: no",
	} {
		if got := findFault(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
