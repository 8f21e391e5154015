package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// needLab skips a test where a lab can not be made, or fails it when
// REQUIRE_LAB=1 says that one must be.
func needLab(t *testing.T) {
	t.Helper()
	var reason string
	if testing.Short() {
		reason = "short tests"
	} else if _, err := exec.LookPath("mmdebstrap"); err != nil {
		reason = "no mmdebstrap"
	} else if b, err := os.ReadFile("/proc/cmdline"); err == nil && bytes.Contains(b, []byte("thaw.lab=1")) {
		reason = "this is the lab"
	}
	switch {
	case reason == "":
	case os.Getenv("REQUIRE_LAB") == "1":
		t.Fatal("REQUIRE_LAB=1, but: " + reason)
	default:
		t.Skip(reason)
	}
}

func startLab(t *testing.T, o Options) *Lab {
	t.Helper()
	needLab(t)
	o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	l, err := Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// sh runs a shell script in the lab and returns its output.
func sh(t *testing.T, l *Lab, script string) string {
	t.Helper()
	var out bytes.Buffer
	code, err := l.Run(t.Context(), Command{Argv: []string{"sh", "-c", script}, Stdout: &out, Stderr: &out})
	if err != nil || code != 0 {
		t.Fatalf("%s: exit %d, %v: %s", script, code, err, out.String())
	}
	return strings.TrimSpace(out.String())
}

func TestLab(t *testing.T) {
	writable := t.TempDir()
	l := startLab(t, Options{Writable: []string{writable}, MemoryMiB: 2048})
	st := l.Status()
	t.Logf("up in %.1f s, restarts %d, %s, %s", st.BootSeconds, st.Restarts, st.Tools.QEMU, st.Tools.Kernel)

	t.Run("exit codes", func(t *testing.T) { testExitCodes(t, l) })
	t.Run("streams", func(t *testing.T) { testStreams(t, l) })
	t.Run("large output", func(t *testing.T) { testLargeOutput(t, l) })
	t.Run("kvm", func(t *testing.T) {
		sh(t, l, "exec 3<>/dev/kvm; test -c /dev/net/tun; grep -q -w svm /proc/cpuinfo")
	})
	t.Run("modules", func(t *testing.T) {
		if st.Inside == nil || len(st.Inside.Missing) > 0 {
			t.Errorf("inside: %+v", st.Inside)
		}
		sh(t, l, "unshare -n sh -c 'ip link add a type veth peer name b || true'")
	})
	t.Run("cgroup controllers", func(t *testing.T) { testControllers(t, l) })
	t.Run("host is not written", func(t *testing.T) { testIsolation(t, l, writable) })
	t.Run("cancel", func(t *testing.T) { testCancel(t, l) })
	t.Run("background child", func(t *testing.T) {
		begin := time.Now()
		sh(t, l, "sleep 1000 & echo started")
		if time.Since(begin) > time.Minute {
			t.Error("a background child kept the command open")
		}
	})
	t.Run("forward", func(t *testing.T) { testForward(t, l) })
	t.Run("restart", func(t *testing.T) { testRestart(t, l) })
}

func testExitCodes(t *testing.T, l *Lab) {
	for _, c := range []struct {
		argv []string
		want int
	}{
		{[]string{"true"}, 0},
		{[]string{"false"}, 1},
		{[]string{"sh", "-c", "exit 42"}, 42},
		{[]string{"sh", "-c", "kill -TERM $$"}, 128 + 15},
	} {
		got, err := l.Run(t.Context(), Command{Argv: c.argv})
		if err != nil || got != c.want {
			t.Errorf("%v: exit %d, %v; want %d", c.argv, got, err, c.want)
		}
	}
	if _, err := l.Run(t.Context(), Command{Argv: []string{"no-such-command"}}); err == nil || errors.Is(err, ErrDied) {
		t.Errorf("missing command: %v, want an error that is not ErrDied", err)
	}
}

func testStreams(t *testing.T, l *Lab) {
	var out, errs bytes.Buffer
	code, err := l.Run(t.Context(), Command{
		Argv:   []string{"sh", "-c", "cat; echo err >&2; pwd; echo $X"},
		Env:    []string{"X=y", "PATH=/usr/bin:/bin"},
		Dir:    "/usr",
		Stdin:  strings.NewReader("in\n"),
		Stdout: &out, Stderr: &errs,
	})
	if err != nil || code != 0 {
		t.Fatalf("exit %d, %v", code, err)
	}
	if out.String() != "in\n/usr\ny\n" || errs.String() != "err\n" {
		t.Errorf("stdout %q, stderr %q", out.String(), errs.String())
	}
}

func testLargeOutput(t *testing.T, l *Lab) {
	const size = 8 << 20
	var n counter
	begin := time.Now()
	code, err := l.Run(t.Context(), Command{
		Argv: []string{"head", "-c", fmt.Sprint(size), "/dev/zero"}, Stdout: &n,
	})
	if err != nil || code != 0 || n != size {
		t.Errorf("exit %d, %v, %d bytes; want %d", code, err, n, size)
	}
	t.Logf("%.1f MB/s through the channel", float64(size)/1e6/time.Since(begin).Seconds())
}

type counter int

func (c *counter) Write(b []byte) (int, error) {
	*c += counter(len(b))
	return len(b), nil
}

func testControllers(t *testing.T, l *Lab) {
	info, err := l.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cpu", "cpuset", "io", "memory", "pids"} {
		if !slices.Contains(info.Controllers, want) {
			t.Errorf("controller %s is missing of %v", want, info.Controllers)
		}
	}
	sh(t, l, `mkdir /sys/fs/cgroup/t && cd /sys/fs/cgroup/t &&
		test -e cpu.max && test -e memory.max && test -e pids.max && test -e io.max && cd / && rmdir /sys/fs/cgroup/t`)
}

func testIsolation(t *testing.T, l *Lab, writable string) {
	dir := t.TempDir()
	host := filepath.Join(dir, "file")
	if err := os.WriteFile(host, []byte("host"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, l, "cat "+host+" && echo lab >"+host+" && echo new >"+dir+"/new && cat "+host); got != "hostlab" {
		t.Errorf("in the lab: %q", got)
	}
	if b, _ := os.ReadFile(host); string(b) != "host" {
		t.Errorf("the lab wrote the host's file: %q", b)
	}
	if _, err := os.Stat(dir + "/new"); err == nil {
		t.Error("the lab made a file on the host")
	}
	sh(t, l, "echo out >"+writable+"/result")
	if b, err := os.ReadFile(filepath.Join(writable, "result")); string(b) != "out\n" {
		t.Errorf("writable folder: %q, %v", b, err)
	}
}

func testCancel(t *testing.T, l *Lab) {
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan struct{})
	go func() { <-started; cancel() }()
	_, err := l.Run(ctx, Command{
		Argv:   []string{"sh", "-c", "echo go; sleep 98765"},
		Stdout: writerFunc(func(b []byte) (int, error) { close(started); return len(b), nil }),
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	sh(t, l, "for i in 1 2 3 4 5 6 7 8 9 10; do pgrep -f 'sleep 9876[5]' || exit 0; sleep 1; done; exit 1")
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func testForward(t *testing.T, l *Lab) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const script = `
import socket, os
s = socket.socket(socket.AF_UNIX); s.bind("/run/echo.sock"); s.listen()
print("ready", flush=True)
while True:
    c, _ = s.accept()
    f = c.makefile("rwb"); f.write(b"lab:" + f.read()); f.close(); c.close()
`
	ready := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := l.Run(ctx, Command{
			Argv:   []string{"python3", "-c", script},
			Stdout: writerFunc(func(b []byte) (int, error) { close(ready); return len(b), nil }),
			Stderr: os.Stderr,
		})
		done <- err
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	host := filepath.Join(l.opts.StateDir, "echo.sock")
	if err := l.ForwardUnix(host, "/run/echo.sock"); err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: host, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "hello %d", i)
		c.CloseWrite()
		got, err := io.ReadAll(c)
		c.Close()
		if want := fmt.Sprintf("lab:hello %d", i); err != nil || string(got) != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	cancel()
	<-done
}

// testRestart makes the lab's kernel die: it comes up again once, is counted,
// and fails for good at the second time.
func testRestart(t *testing.T, l *Lab) {
	crash := Command{Argv: []string{"sh", "-c", "echo c >/proc/sysrq-trigger"}}
	if _, err := l.Run(t.Context(), crash); !errors.Is(err, ErrDied) {
		t.Errorf("command in a dying lab: %v, want ErrDied", err)
	}
	if code, err := l.Run(t.Context(), Command{Argv: []string{"true"}}); code != 0 || err != nil {
		t.Fatalf("after the restart: exit %d, %v", code, err)
	}
	st, err := ReadStatus(l.opts.StateDir)
	if err != nil || st.State != StateUp || st.Restarts != 1 || len(st.Deaths) != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
	if len(st.Deaths) > 0 && !strings.Contains(st.Deaths[0], "sysrq") {
		t.Errorf("the death does not show the console: %s", st.Deaths[0])
	}
	if _, err := l.Run(t.Context(), crash); !errors.Is(err, ErrDied) {
		t.Errorf("command in a dying lab: %v, want ErrDied", err)
	}
	if _, err := l.Run(t.Context(), Command{Argv: []string{"true"}}); err == nil {
		t.Error("the lab came up a third time")
	}
	if st := l.Status(); st.State != StateFailed || len(st.Deaths) != 2 {
		t.Errorf("status %+v", st)
	}
}
