package vmmchild

import (
	"errors"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"go.uber.org/goleak"

	"thaw/internal/unixfd"
	"thaw/vmm/vmmproto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// daemon is the other end of a control.
func daemon(t *testing.T) (*control, *os.File) {
	t.Helper()
	ours, theirs, err := unixfd.Pair(unixfd.SeqPacket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return newControl(ours), theirs
}

func receiveConnect(t *testing.T, conn *os.File) *vmmproto.Connect {
	t.Helper()
	buf := make([]byte, vmmproto.MaxMessage)
	conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, _, err := unixfd.Recv(conn, buf, 0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := vmmproto.DecodeFromVMM(buf[:n])
	if err != nil {
		t.Fatal(err)
	}
	return m.(*vmmproto.Connect)
}

// A guest that dials without end gets resets from us; the daemon never sees more than the bound.
func TestConnectIsBounded(t *testing.T) {
	c, conn := daemon(t)
	results := make(chan error, vmmproto.MaxOutstanding)
	var ids []uint64
	for range vmmproto.MaxOutstanding {
		go func() {
			_, err := c.connect(7)
			results <- err
		}()
		ids = append(ids, receiveConnect(t, conn).ID)
	}
	if _, err := c.connect(7); !errors.Is(err, errBusy) {
		t.Fatalf("got %v, want %v", err, errBusy)
	}
	for _, id := range ids {
		if err := c.answer(id, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range ids {
		if err := <-results; !errors.Is(err, errRefused) {
			t.Errorf("got %v, want %v", err, errRefused)
		}
	}
	if err := c.answer(ids[0], nil); err == nil {
		t.Error("a second answer was taken")
	}
}

// silent is a machine that has nothing to say.
type silent struct{ Machine }

func (silent) Console() []byte { return nil }

// A machine that does nothing is pinged for as long as it lives. What that leaves is little,
// and is collected although nothing else is (spawner.Environment).
func TestPingLeavesLittle(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	c, conn := daemon(t)
	c.machine = silent{}
	ping, err := vmmproto.Encode(&vmmproto.Ping{ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	const most = 16 << 10 // bytes of each, the daemon's side included
	buf := make([]byte, vmmproto.MaxMessage)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range collectPings {
		if err := unixfd.Send(conn, ping); err != nil {
			t.Fatal(err)
		}
		m, files, err := c.receive(vmmproto.MaxFiles)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.handle(m, files); err != nil {
			t.Fatal(err)
		}
		if _, _, err := unixfd.Recv(conn, buf, 0); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / collectPings; each > most {
		t.Errorf("each ping allocates %d bytes, at most %d are expected", each, most)
	}
	if n := after.NumGC - before.NumGC; n != 1 {
		t.Errorf("%d collections in %d pings, want 1", n, collectPings)
	}
}

func TestConnectGetsTheFile(t *testing.T) {
	c, conn := daemon(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan *os.File, 1)
	go func() {
		f, err := c.connect(1025)
		if err != nil {
			t.Error(err)
		}
		got <- f
	}()
	m := receiveConnect(t, conn)
	if m.Port != 1025 {
		t.Errorf("port %d", m.Port)
	}
	if err := c.answer(m.ID, null); err != nil {
		t.Fatal(err)
	}
	if f := <-got; f != null {
		t.Errorf("got %v", f)
	}
	null.Close()
}
