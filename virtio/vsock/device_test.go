package vsock

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHostConnects(t *testing.T) {
	r := newRig(t, nil)
	c, p := r.dial(1024, 1<<20)
	io.WriteString(c, "to the guest")
	h, payload := r.expect(opData)
	if string(payload) != "to the guest" || h.dstPort != 1024 || h.srcPort != p.host || h.bufAlloc != bufferSize {
		t.Errorf("packet %+v %q", h, payload)
	}
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opData, bufAlloc: 1 << 20}, []byte("to the host"))
	got := make([]byte, 11)
	if _, err := io.ReadFull(c, got); err != nil || string(got) != "to the host" {
		t.Errorf("read %q, %v", got, err)
	}
	// The guest closes: what it sent arrives, then the end, then a reset as
	// the answer.
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opData, bufAlloc: 1 << 20}, []byte("last"))
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opShutdown, flags: shutdownBoth}, nil)
	if rest, err := io.ReadAll(c); err != nil || string(rest) != "last" {
		t.Errorf("rest %q, %v", rest, err)
	}
	r.expect(opReset)
}

func TestHostClosesFirst(t *testing.T) {
	r := newRig(t, nil)
	c, p := r.dial(1, 1<<20)
	c.CloseWrite()
	if h, _ := r.expect(opShutdown); h.flags != shutdownSend {
		t.Errorf("shutdown flags %d", h.flags)
	}
	// The other direction is still open.
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opData, bufAlloc: 1 << 20}, []byte("answer"))
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opShutdown, flags: shutdownBoth}, nil)
	if got, err := io.ReadAll(c); err != nil || string(got) != "answer" {
		t.Errorf("read %q, %v", got, err)
	}
	r.expect(opReset)
}

func TestGuestRefuses(t *testing.T) {
	r := newRig(t, nil)
	c, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT 7\n")
	h, _ := r.expect(opRequest)
	r.send(header{srcPort: h.dstPort, dstPort: h.srcPort, op: opReset}, nil)
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Errorf("read %q, %v; want the end", b, err)
	}
}

func TestBadConnectLines(t *testing.T) {
	r := newRig(t, nil)
	for _, line := range []string{"CONNECT \n", "CONNECT 4294967296\n", "CONNECT -1\n", "connect 1\n", "GET / HTTP/1.1\n", string(bytes.Repeat([]byte("x"), 100))} {
		c, err := net.Dial("unix", r.path)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, line)
		c.SetDeadline(time.Now().Add(patience))
		if b, err := io.ReadAll(c); len(b) != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: read %q, %v", line, b, err)
		}
		c.Close()
	}
}

func TestGuestConnects(t *testing.T) {
	theirs, ours := socketPair(t)
	r := newRig(t, func(port uint32) (*os.File, error) {
		if port != 1025 {
			return nil, errors.New("not registered")
		}
		return theirs, nil
	})
	r.send(header{srcPort: 50, dstPort: 99, op: opRequest}, nil)
	if h, _ := r.expect(opReset); h.srcPort != 99 || h.dstPort != 50 {
		t.Errorf("reset %+v", h)
	}
	r.send(header{srcPort: 50, dstPort: 1025, op: opRequest, bufAlloc: 4}, nil)
	r.expect(opResponse)
	r.send(header{srcPort: 50, dstPort: 1025, op: opData, bufAlloc: 4}, []byte("ready"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(ours, got); err != nil || string(got) != "ready" {
		t.Fatalf("read %q, %v", got, err)
	}
	// The guest has room for four bytes: no more is sent until it says so.
	io.WriteString(ours, "abcdef")
	if _, payload := r.expect(opData); string(payload) != "abcd" {
		t.Errorf("payload %q", payload)
	}
	r.expect(opCreditRequest)
	r.send(header{srcPort: 50, dstPort: 1025, op: opCreditUpdate, bufAlloc: 4, fwdCnt: 4}, nil)
	if _, payload := r.expect(opData); string(payload) != "ef" {
		t.Errorf("payload %q", payload)
	}
}

// TestBackPressure: a host process that does not read makes the guest stop
// within its credit; when it reads on, everything arrives and credit with it.
func TestBackPressure(t *testing.T) {
	r := newRig(t, nil)
	c, p := r.dial(1, 1<<20)
	var sent bytes.Buffer
	chunk := bytes.Repeat([]byte("0123456789abcdef"), 2048)
	var forwarded, received uint32
	push := func() bool {
		if received-forwarded+uint32(len(chunk)) > bufferSize {
			return false
		}
		chunk[0]++
		r.send(header{srcPort: p.guest, dstPort: p.host, op: opData, bufAlloc: 1 << 20}, chunk)
		sent.Write(chunk)
		received += uint32(len(chunk))
		return true
	}
	for push() {
	}
	const total = 2 << 20
	got := make([]byte, 0, total)
	buf := make([]byte, 64<<10)
	for len(got) < total {
		for {
			head, n, ok := r.queues[receiveQueue].Used()
			if !ok {
				break
			}
			h := parseHeader((*[headerSize]byte)(r.queues[receiveQueue].Bytes(r.rx[head])[:n]))
			r.offer(r.rx[head])
			forwarded = h.fwdCnt
		}
		for sent.Len() < total && push() {
		}
		if len(got) == sent.Len() {
			time.Sleep(time.Millisecond) // credit is on its way
			continue
		}
		n, err := c.Read(buf)
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(got), sent.Len(), err)
		}
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, sent.Bytes()) {
		t.Error("stream was damaged")
	}
}

func TestViolationsResetTheConnection(t *testing.T) {
	for name, violate := range map[string]func(r *rig, p pair){
		"more than its credit": func(r *rig, p pair) {
			for range bufferSize/(64<<10) + 8 {
				r.send(header{srcPort: p.guest, dstPort: p.host, op: opData, bufAlloc: 1}, make([]byte, 64<<10))
			}
		},
		"data after shutdown": func(r *rig, p pair) {
			r.send(header{srcPort: p.guest, dstPort: p.host, op: opShutdown, flags: shutdownSend}, nil)
			r.send(header{srcPort: p.guest, dstPort: p.host, op: opData}, []byte("x"))
		},
		"second request":  func(r *rig, p pair) { r.send(header{srcPort: p.guest, dstPort: p.host, op: opRequest}, nil) },
		"second response": func(r *rig, p pair) { r.send(header{srcPort: p.guest, dstPort: p.host, op: opResponse}, nil) },
		"unknown operation": func(r *rig, p pair) {
			r.send(header{srcPort: p.guest, dstPort: p.host, op: 77}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			_, p := r.dial(1, 1<<20)
			violate(r, p)
			for {
				if h, _ := r.receive(); h.op == opReset {
					break
				}
			}
			// Others are not affected. What the guest sent to the connection
			// after its end is answered by a reset each.
			c, _ := r.dial(2, 1<<20)
			io.WriteString(c, "still here")
			for {
				if h, _ := r.receive(); h.op == opData && h.dstPort == 2 {
					break
				} else if h.op != opReset || h.dstPort != p.guest {
					t.Fatalf("packet %+v", h)
				}
			}
		})
	}
}

func TestBadPackets(t *testing.T) {
	r := newRig(t, nil)
	// For nobody: answered with a reset. Not from the guest, or not to the
	// host: no answer.
	r.send(header{srcPort: 5, dstPort: 6, op: opData}, []byte("x"))
	r.expect(opReset)
	r.sendRaw(header{srcCID: 99, dstCID: hostCID, kind: typeStream, op: opRequest, srcPort: 1, dstPort: 1}, nil)
	r.sendRaw(header{srcCID: guestCID, dstCID: 77, kind: typeStream, op: opRequest, srcPort: 1, dstPort: 1}, nil)
	r.sendRaw(header{srcCID: guestCID, dstCID: hostCID, kind: 2, op: opRequest, srcPort: 8, dstPort: 9}, nil)
	if h, _ := r.expect(opReset); h.srcPort != 9 {
		t.Errorf("reset %+v", h)
	}
	if n := r.dev.Metrics().Invalid.Load(); n != 3 {
		t.Errorf("%d invalid packets, want 3", n)
	}
	// A length beyond the chain breaks the queue.
	r.sendRaw(header{srcCID: guestCID, dstCID: hostCID, kind: typeStream, op: opData, length: 1 << 30}, []byte("x"))
	for end := time.Now().Add(patience); r.broken.Load() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("device did not ask for a reset")
		}
	}
}

func TestManyConnections(t *testing.T) {
	r := newRig(t, nil)
	for i := range uint32(maxConns) {
		r.dial(i, 1<<20)
	}
	c, err := net.Dial("unix", r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT 5\n")
	if b, err := io.ReadAll(c); len(b) != 0 || err != nil {
		t.Errorf("connection beyond the limit: %q, %v", b, err)
	}
}

func TestPauseHoldsPackets(t *testing.T) {
	r := newRig(t, nil)
	c, _ := r.dial(1, 1<<20)
	r.dev.Pause()
	before := r.queues[receiveQueue].UsedIndex()
	io.WriteString(c, "later")
	time.Sleep(50 * time.Millisecond)
	if r.queues[receiveQueue].UsedIndex() != before {
		t.Error("guest memory was touched while paused")
	}
	r.dev.Resume()
	if _, payload := r.expect(opData); string(payload) != "later" {
		t.Errorf("payload %q", payload)
	}
}
