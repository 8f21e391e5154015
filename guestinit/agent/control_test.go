package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/guestinit/cgroup"
	"thaw/guestinit/guesttest"
	"thaw/guestinit/launch"
	"thaw/guestinit/reaper"
	"thaw/internal/kvmtest"
)

// newServer returns a server that starts jobs and serves nobody.
func newServer(t *testing.T) *Server {
	t.Helper()
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "not root")
	}
	mount := guesttest.CgroupMount(t)
	dir, err := os.MkdirTemp("", "agent-control")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	r := reaper.New()
	go r.Run(ctx)
	l, err := launch.New(r)
	if err != nil {
		t.Fatal(err)
	}
	groups, err := cgroup.New(cgroup.Config{Mount: mount, Name: filepath.Base(dir)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Workspace: dir, Launcher: l, Reaper: r, Cgroups: groups, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.stopExecs(10 * time.Second)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		l.Close()
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// pair returns a connection of the server's and the host's end of it.
func pair(t *testing.T, s *Server) (*conn, *agentproto.Reader) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
		t.Cleanup(func() { conns[i].Close() })
	}
	_ = conns[1].SetDeadline(time.Now().Add(30 * time.Second))
	return newConn(s, conns[0]), agentproto.NewReader(conns[1])
}

// A job has the control socket at descriptor 3, alone, and can be put under
// new terms: the way of a warm interpreter.
func TestControl(t *testing.T) {
	s := newServer(t)
	e, err := s.launch(agentproto.ExecRequest{
		Argv:    []string{"/bin/sh", "-c", `printf 'before '; ls /proc/self/fd | tr '\n' ' ' >&3; read line <&3; head -c 100000 /dev/zero; echo "$line"; read line <&3; sleep 60`},
		Persist: true,
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	control := bufio.NewReader(e.control)
	_ = e.control.SetDeadline(time.Now().Add(30 * time.Second))
	fds := make([]byte, len("0 1 2 3 4 "))
	if _, err := io.ReadFull(control, fds); err != nil || string(fds) != "0 1 2 3 4 " { // 4 is the directory
		t.Fatalf("descriptors are %q, %v", fds, err)
	}

	c, host := pair(t, s)
	if ok, err := e.attach(c); !ok || err != nil {
		t.Fatal(ok, err)
	}
	next := func(typ agentproto.FrameType, v any) []byte {
		t.Helper()
		f, err := host.Next()
		if err != nil || f.Type != typ {
			t.Fatalf("%v frame, %v; want %v", f.Type, err, typ)
		}
		if v != nil {
			if err := agentproto.Decode(f.Payload, v); err != nil {
				t.Fatal(err)
			}
		}
		return f.Payload
	}
	var started agentproto.Started
	if next(agentproto.FrameStarted, &started); started.ExecID != e.id || started.StdoutAt != 0 {
		t.Errorf("started: %+v", started)
	}
	e.adopt(terms{Timeout: 2 * time.Second, StdoutCap: 1000})
	// What came before the new terms is not counted under them.
	if got := next(agentproto.FrameStdout, nil); string(got) != "before " {
		t.Errorf("output before is %q", got)
	}
	if _, err := io.WriteString(e.control, "hello\n"); err != nil {
		t.Fatal(err)
	}
	if got := next(agentproto.FrameStdout, nil); len(got) != 500 {
		t.Errorf("head has %d bytes", len(got))
	}
	e.settle()
	tail := next(agentproto.FrameStdout, nil)
	for len(tail) < 500 {
		tail = append(tail, next(agentproto.FrameStdout, nil)...)
	}
	if len(tail) != 500 || string(tail[494:]) != "hello\n" {
		t.Errorf("tail has %d bytes", len(tail))
	}
	var status agentproto.ExitStatus
	if next(agentproto.FrameExit, &status); status.Cause != agentproto.CauseTimeout || status.StdoutBytes != 100006 || status.StdoutDropped != 99006 {
		t.Errorf("%+v", status)
	}
}

// Who asks a stream for something while it does what another asked for is served, and a
// deadline that comes after what it was set for does not end the stream.
func TestBetween(t *testing.T) {
	s := newServer(t)
	e, err := s.launch(agentproto.ExecRequest{Argv: []string{"/bin/sh", "-c", `head -c 400000 /dev/zero; echo >&3; sleep 60`}, Persist: true}, true)
	if err != nil {
		t.Fatal(err)
	}
	c, host := pair(t, s)
	if ok, err := e.attach(c); !ok || err != nil {
		t.Fatal(ok, err)
	}
	// The host does not read yet, and all is written: the stream comes to the first on its
	// way from one read to the next, which finds nothing.
	if _, err := e.control.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	served := make(chan string, 2)
	go e.stdout.between(func(*buffer) {
		go e.stdout.between(func(*buffer) { served <- "second" })
		for len(e.stdout.wants) == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond) // the second's deadline is set
		served <- "first"
	})
	for len(e.stdout.wants) == 0 {
		time.Sleep(time.Millisecond)
	}
	go func() {
		for {
			if f, err := host.Next(); err != nil || f.Type == agentproto.FrameExit {
				return
			}
		}
	}()
	for _, want := range []string{"first", "second"} {
		select {
		case got := <-served:
			if got != want {
				t.Errorf("%s is served, want %s", got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s is not served", want)
		}
	}
	_ = e.stdout.r.SetReadDeadline(time.Unix(1, 0))
	select {
	case <-e.stdout.done:
		t.Error("the stream ended before the job")
	case <-time.After(50 * time.Millisecond):
	}
	e.abandon()
}

// Everything that was written before is sent when settle returns.
func TestSettle(t *testing.T) {
	s := newServer(t)
	e, err := s.launch(agentproto.ExecRequest{
		Argv:    []string{"/bin/sh", "-c", `while read n <&3; do head -c $n /dev/zero; echo x >&3; done`},
		Persist: true,
	}, true)
	if err != nil {
		t.Fatal(err)
	}
	c, host := pair(t, s)
	if ok, err := e.attach(c); !ok || err != nil {
		t.Fatal(ok, err)
	}
	done := make(chan int)
	go func() {
		total := 0
		for {
			f, err := host.Next()
			if err != nil || f.Type == agentproto.FrameExit {
				done <- total
				return
			}
			if f.Type == agentproto.FrameStdout {
				total += len(f.Payload)
			}
		}
	}()
	control := bufio.NewReader(e.control)
	want := 0
	for i := range 50 {
		n := i * i * 20
		want += n
		if _, err := io.WriteString(e.control, strconv.Itoa(n)+"\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := control.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		e.settle()
		e.link.mu.Lock()
		sent := e.stdout.sent
		e.link.mu.Unlock()
		if sent != int64(want) {
			t.Fatalf("%d bytes were sent of %d", sent, want)
		}
	}
	e.abandon()
	if got := <-done; got != want {
		t.Errorf("host got %d bytes of %d", got, want)
	}
}
