package berth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/broker/journal"
	"thaw/internal/hostinfo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeVMM answers one CONNECT as it is told to.
func fakeVMM(t *testing.T, answer func(net.Conn)) *Berth {
	t.Helper()
	sockets, err := newSocketDir()
	if err != nil {
		t.Fatal(err)
	}
	const id = "vm"
	f, err := sockets.listen(id)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(f)
	f.Close()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err == nil {
			answer(c)
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done; sockets.close() })
	return &Berth{ID: id, yard: &Yard{sockets: sockets}}
}

func TestDial(t *testing.T) {
	b := fakeVMM(t, func(c net.Conn) {
		got := make([]byte, 64)
		n, _ := c.Read(got)
		fmt.Fprintf(c, "OK 7\n%s", got[:n])
	})
	c, err := b.Dial(t.Context(), 1024)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := make([]byte, 64)
	if n, err := c.Read(got); err != nil || string(got[:n]) != "CONNECT 1024\n" {
		t.Errorf("stream gave %q, %v", got[:n], err)
	}
}

func TestDialFails(t *testing.T) {
	for name, answer := range map[string]func(net.Conn){
		"refused": func(c net.Conn) { fmt.Fprint(c, "NO\n") }, "endless": func(c net.Conn) { fmt.Fprint(c, strings.Repeat("x", 1000)) },
		"closed": func(net.Conn) {}, "silent": func(net.Conn) { time.Sleep(100 * time.Millisecond) },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if c, err := fakeVMM(t, answer).Dial(ctx, 1); err == nil {
			c.Close()
			t.Errorf("%s: connected", name)
		}
		cancel()
	}
}

// The request goes out with the line, and what comes with its answer is not lost.
func TestDialAhead(t *testing.T) {
	b := fakeVMM(t, func(c net.Conn) {
		got := make([]byte, 64)
		n, _ := c.Read(got)
		fmt.Fprintf(c, "OK 7\n%s", got[:n])
		n, _ = c.Read(got)
		c.Write(got[:n])
	})
	c, err := b.DialAhead(t.Context(), 1024)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Write([]byte("request")); n != 7 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "CONNE" {
		t.Fatalf("%q, %v", got, err)
	}
	got = make([]byte, len("CT 1024\nrequest"))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "CT 1024\nrequest" {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := c.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "more" {
		t.Fatalf("%q, %v", rest, err)
	}
}

// yard is one on a hierarchy of cgroups at root: a folder, what is written is what
// counts.
func yard(t *testing.T, root string) *Yard {
	t.Helper()
	j, err := journal.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	y, err := NewYard(j, hostinfo.Cgroup{Mount: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { y.Close() })
	return y
}

func TestTakeAndClose(t *testing.T) {
	root := t.TempDir()
	y := yard(t, root)
	a, err := y.Take(Spec{ID: "a", VCPUs: 1, MemoryMiB: 256})
	if err != nil {
		t.Fatal(err)
	}
	b, err := y.Take(Spec{ID: "b", VCPUs: 1, MemoryMiB: 256})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close(t.Context())
	if c, err := a.DialAhead(t.Context(), 1); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	if a.UID == b.UID || a.UID < firstUID {
		t.Errorf("user ids %d and %d", a.UID, b.UID)
	}
	if _, err := y.Take(Spec{ID: "a"}); err == nil {
		t.Error("the same machine twice")
	}
	var order []string
	for _, what := range []string{"first", "second"} {
		a.OnClose(what, func() error { order = append(order, what); return nil })
	}
	if err := a.Close(t.Context()); err != nil || fmt.Sprint(order) != "[second first]" {
		t.Errorf("closed %v, %v", order, err)
	}
	if n := y.journal.Machines(); n != 1 {
		t.Errorf("%d machines in the journal, want the other", n)
	}
	for _, path := range []string{y.sockets.path("a"), filepath.Join(root, cgroupParent, "a")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", path, err)
		}
	}
	if _, err := a.DialAhead(t.Context(), 1); !errors.Is(err, unix.ENOENT) {
		t.Errorf("connected to a machine that is gone: %v", err)
	}
	if err := a.Close(t.Context()); err != nil || len(order) != 2 {
		t.Errorf("closed again: %v, %v", order, err)
	}
	if len(y.slots) != 1 {
		t.Errorf("%d slots in use, want 1", len(y.slots))
	}
}

// A daemon that is killed between making the cgroup and starting the process
// leaves one that the next daemon removes.
func TestCgroupIsInTheJournalFirst(t *testing.T) {
	root := t.TempDir()
	y := yard(t, root)
	b, err := y.Take(Spec{ID: "x", VCPUs: 2, MemoryMiB: 640})
	if err != nil {
		t.Fatal(err)
	}
	b.Handed()
	left, err := y.journal.Reclaim()
	if err != nil || len(left) != 1 || left[0].Err != nil || left[0].Killed {
		t.Errorf("reclaimed %+v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(root, cgroupParent, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}
