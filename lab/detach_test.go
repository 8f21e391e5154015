package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// serveArg makes this test binary the background process of a detached lab.
const serveArg = "serve-lab"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == serveArg {
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		err := Serve(ctx, os.Args[2], slog.New(slog.NewTextHandler(os.Stderr, nil)))
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func TestDetachedLab(t *testing.T) {
	needLab(t)
	dir, err := os.MkdirTemp("", "lab") // short, for its sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := errors.Join(Down(ctx, dir), os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	sock := filepath.Join(dir, "api.sock")
	o := Options{
		StateDir: dir, MemoryMiB: 1024,
		Forward: map[string]string{sock: "/run/api.sock"},
		Service: &Command{Argv: []string{"python3", "-c", `
import socket
s = socket.socket(socket.AF_UNIX); s.bind("/run/api.sock"); s.listen()
while True:
    c, _ = s.accept(); c.sendall(b"from the lab"); c.close()
`}},
	}
	serve := []string{os.Args[0], serveArg}
	st, err := Up(ctx, o, serve)
	if err != nil {
		t.Fatal(err)
	}
	if st.State != StateUp || st.Service != serviceRunning || st.PID == os.Getpid() {
		t.Errorf("status %+v", st)
	}
	if again, err := Up(ctx, o, serve); err != nil || again.PID != st.PID {
		t.Errorf("second up: pid %d, %v; want %d", again.PID, err, st.PID)
	}
	c, err := net.Dial("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "from the lab" {
		t.Errorf("forwarded socket: %q, %v", got, err)
	}
	c.Close()
	client, err := Attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	if code, err := client.Run(ctx, Command{Argv: []string{"sh", "-c", "exit 7"}}); code != 7 || err != nil {
		t.Errorf("run: exit %d, %v", code, err)
	}
	if err := Down(ctx, dir); err != nil {
		t.Fatal(err)
	}
	checkGone(t, dir, st)
	if err := Down(ctx, dir); err != nil {
		t.Errorf("second down: %v", err)
	}
	t.Run("killed supervisor", func(t *testing.T) { testKilled(t, ctx, o, serve) })
	t.Run("service that ends", func(t *testing.T) {
		o.Service = &Command{Argv: []string{"sh", "-c", "echo no disk; exit 3"}}
		_, err := Up(ctx, o, serve)
		if want := "ended with exit code 3"; err == nil || !contains(err, want) || !contains(err, "no disk") {
			t.Errorf("got %v, want an error about %q with its output", err, want)
		}
	})
}

// testKilled kills the supervisor the hard way: its processes go with it, and
// the next lab finds nothing in its way.
func testKilled(t *testing.T, ctx context.Context, o Options, serve []string) {
	o.Service = nil
	st, err := Up(ctx, o, serve)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(st.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	checkGone(t, o.StateDir, st)
	if st, err := Up(ctx, o, serve); err != nil || st.State != StateUp {
		t.Errorf("up again: %+v, %v", st, err)
	}
	if err := Down(ctx, o.StateDir); err != nil {
		t.Error(err)
	}
}

func checkGone(t *testing.T, dir string, old Status) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for unix.Kill(old.QEMUPID, 0) == nil {
		if time.Now().After(deadline) {
			t.Fatalf("QEMU %d lives on", old.QEMUPID)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if st, err := ReadStatus(dir); err != nil || st.State != StateDown {
		t.Errorf("status %+v, %v", st, err)
	}
	if _, err := Attach(dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("attach: %v, want ErrNotRunning", err)
	}
}

func TestUpTellsWhyItFailed(t *testing.T) {
	dir := t.TempDir()
	if len(dir) > maxStateDir {
		t.Skip("temporary folder has a long name")
	}
	_, err := Up(t.Context(), Options{StateDir: dir}, []string{"/bin/sh", "-c", "echo reason >&2; exit 1"})
	if err == nil || !contains(err, "reason") {
		t.Errorf("got %v, want the supervisor's output", err)
	}
	_, err = Up(t.Context(), Options{StateDir: dir, Init: "/no/such/init"}, []string{os.Args[0], serveArg})
	if err == nil || !contains(err, "/no/such/init") {
		t.Errorf("got %v, want the lab's own reason", err)
	}
}
