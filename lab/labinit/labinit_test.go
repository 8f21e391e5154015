package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/yamux"

	"thaw/lab"
	"thaw/lab/labproto"
)

// client returns a client of a server that runs here: what it does with
// processes and sockets is the same on any Linux.
func client(t *testing.T) *lab.Client {
	t.Helper()
	near, far := net.Pipe()
	host, err := yamux.Client(near, labproto.MuxConfig())
	if err != nil {
		t.Fatal(err)
	}
	server, err := yamux.Server(far, labproto.MuxConfig())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			s, err := server.AcceptStream()
			if err != nil {
				return
			}
			go handle(s)
		}
	}()
	t.Cleanup(func() { host.Close(); server.Close() })
	return lab.NewClient(func(context.Context) (net.Conn, error) { return host.OpenStream() })
}

func TestExec(t *testing.T) {
	c := client(t)
	for name, tc := range map[string]struct {
		cmd         lab.Command
		exit        int
		out, errOut string
	}{
		"true":   {lab.Command{Argv: []string{"true"}}, 0, "", ""},
		"false":  {lab.Command{Argv: []string{"false"}}, 1, "", ""},
		"code":   {lab.Command{Argv: []string{"sh", "-c", "exit 42"}}, 42, "", ""},
		"signal": {lab.Command{Argv: []string{"sh", "-c", "kill -9 $$"}}, 137, "", ""},
		"streams": {lab.Command{Argv: []string{"sh", "-c", "cat; echo e >&2"}, Stdin: strings.NewReader("in")},
			0, "in", "e\n"},
		"environment": {lab.Command{Argv: []string{"sh", "-c", "echo $A; pwd"}, Env: []string{"A=b", "PATH=/bin:/usr/bin"}, Dir: "/usr"},
			0, "b\n/usr\n", ""},
		"absolute":   {lab.Command{Argv: []string{"/bin/sh", "-c", "echo $0", "x"}}, 0, "x\n", ""},
		"no stdin":   {lab.Command{Argv: []string{"cat"}}, 0, "", ""},
		"background": {lab.Command{Argv: []string{"sh", "-c", "sleep 60 & echo on"}}, 0, "on\n", ""},
		"deaf": {lab.Command{Argv: []string{"true"}, Stdin: bytes.NewReader(make([]byte, 4<<20))},
			0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out, errOut bytes.Buffer
			tc.cmd.Stdout, tc.cmd.Stderr = &out, &errOut
			exit, err := c.Run(t.Context(), tc.cmd)
			if err != nil || exit != tc.exit || out.String() != tc.out || errOut.String() != tc.errOut {
				t.Errorf("exit %d, %v, stdout %q, stderr %q", exit, err, out.String(), errOut.String())
			}
		})
	}
}

func TestExecErrors(t *testing.T) {
	c := client(t)
	for name, cmd := range map[string]lab.Command{
		"nothing":        {},
		"missing":        {Argv: []string{"no-such-command"}},
		"missing path":   {Argv: []string{"/no/such/command"}},
		"missing folder": {Argv: []string{"true"}, Dir: "/no/such/folder"},
	} {
		if _, err := c.Run(t.Context(), cmd); err == nil || errors.Is(err, lab.ErrDied) {
			t.Errorf("%s: %v, want an error that is not ErrDied", name, err)
		}
	}
}

// A cancelled command dies with its children, even while it ignores both its
// input and its caller.
func TestCancelKills(t *testing.T) {
	c := client(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := c.Run(ctx, lab.Command{
		Argv:  []string{"sh", "-c", "trap '' TERM INT; (sleep 3; touch late) & sleep 60"},
		Dir:   dir,
		Stdin: bytes.NewReader(make([]byte, 8<<20)), // more than pipe and window hold
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, want %v", err, context.DeadlineExceeded)
	}
	deadline := time.Now().Add(10 * time.Second)
	for running() > 0 {
		if time.Now().After(deadline) {
			t.Fatal("the command runs on")
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(3 * time.Second)
	if _, err := os.Stat(filepath.Join(dir, "late")); err == nil {
		t.Error("a child of the command lived on")
	}
}

func running() (n int) {
	groups.Range(func(any, any) bool { n++; return true })
	return n
}

func TestConnect(t *testing.T) {
	c := client(t)
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		s, err := l.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(s)
		s.Write(append([]byte("got "), b...))
		s.Close()
	}()
	conn, err := c.DialUnix(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Write([]byte("this"))
	conn.Close() // a stream's Close ends its own direction
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "got this" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := c.DialUnix(t.Context(), path+".none"); err == nil || errors.Is(err, lab.ErrDied) {
		t.Errorf("missing socket: %v", err)
	}
}

// What is no request is answered with an error, and the session goes on.
func TestBadRequests(t *testing.T) {
	for name, in := range map[string]string{
		"no json":    "\x01\x00\x00\x00\x01\x00\x00\x00{",
		"not first":  "\x05\x00\x00\x00\x00\x00\x00\x00",
		"no frame":   "GET / HTTP/1.1\r\n",
		"unknown op": "\x01\x00\x00\x00\x0c\x00\x00\x00{\"op\":\"fly\"}",
		"not ours":   "\x01\x00\x00\x00\x27\x00\x00\x00{\"op\":\"signal\",\"pid\":999999,\"signal\":9}",
	} {
		near, far := net.Pipe()
		go handle(far)
		go near.Write([]byte(in))
		var reply labproto.Reply
		err := labproto.ReadJSON(labproto.NewReader(near), labproto.TypeReply, &reply)
		if err != nil || reply.Error == "" {
			t.Errorf("%s: %+v, %v", name, reply, err)
		}
		near.Close()
	}
}

func TestConfigPath(t *testing.T) {
	got, err := configPath("quiet thaw.lab=1 thaw.lab.config=/run/x/boot.json init=/x\n")
	if err != nil || got != "/run/x/boot.json" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := configPath("quiet"); err == nil {
		t.Error("a missing parameter is no error")
	}
}

func TestOpenPort(t *testing.T) {
	class, dev := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{"vport0p1": "other\n", "vport1p1": labproto.PortName + "\n"} {
		if err := os.Mkdir(filepath.Join(class, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, name, "name"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openPort(class, dev); err == nil {
		t.Error("a port without a device was opened")
	}
	if err := os.WriteFile(filepath.Join(dev, "vport1p1"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := openPort(class, dev)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := openPort(t.TempDir(), dev); err == nil {
		t.Error("no port is no error")
	}
}
