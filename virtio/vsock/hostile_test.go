package vsock

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"thaw/virtio/queue/queuetest"
)

// idleGoroutines waits until at most n goroutines are left, and returns how
// many there are.
func idleGoroutines(n int) int {
	have := runtime.NumGoroutine()
	for end := time.Now().Add(patience); have > n && time.Now().Before(end); have = runtime.NumGoroutine() {
		time.Sleep(time.Millisecond)
	}
	return have
}

// A packet's length is 32 bits wide, as is the count of what waits here: their
// sum must not come round to something small.
func TestLengthThatWraps(t *testing.T) {
	r := newRig(t, nil)
	_, p := r.dial(1024, 1<<20)
	h := header{srcPort: p.guest, dstPort: p.host, op: opData, bufAlloc: 1 << 20}
	part := make([]byte, 32<<10)
	for range 16 { // nobody reads: some waits in the socket, the rest here
		if r.send(h, part); r.waiting(p) > 100<<10 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if r.waiting(p) <= 64<<10 {
		t.Fatal("nothing waits")
	}
	// 4 GiB less a little, of buffers on top of each other.
	const length = 1<<32 - 64<<10
	h.srcCID, h.dstCID, h.kind, h.length = guestCID, hostCID, typeStream, length
	var b [headerSize]byte
	h.encode(&b)
	d := r.queues[transmitQueue]
	big := queuetest.Buffer{GPA: 0, Len: 31 << 20}
	chain := []queuetest.Buffer{d.Readable(b[:])}
	for left := uint32(length); left > 0; left -= min(left, big.Len) {
		chain = append(chain, queuetest.Buffer{GPA: 0, Len: min(left, big.Len)})
	}
	d.AddIndirect(chain...)
	r.kicks[transmitQueue].Signal()
	r.expectEventually(opReset)
}

// waiting is how many of a connection's bytes wait for the host's process.
func (r *rig) waiting(p pair) uint32 {
	s := r.dev.session()
	s.mu.Lock()
	c := s.conns[p]
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.received - c.forwarded
}

// expectEventually receives packets until one has the operation.
func (r *rig) expectEventually(op uint16) {
	r.t.Helper()
	for range 1000 {
		if h, _ := r.receive(); h.op == op {
			return
		}
	}
	r.t.Fatalf("no packet with operation %d", op)
}

// A guest that takes no packets, and asks for connections and drops them again
// and again, must not make goroutines that wait for it without bound.
func TestConnectionsThatNobodyHearsOf(t *testing.T) {
	r := newRigWith(t, 0, func(uint32) (*os.File, error) { return nil, errors.New("refused") })
	before := runtime.NumGoroutine()
	for i := range uint32(4 * maxConns) {
		if !r.trySend(header{srcPort: 5000 + i, dstPort: 99, op: opRequest}) {
			break // the device takes no more: as good
		}
	}
	if have := idleGoroutines(before + maxConns); have > before+maxConns {
		t.Errorf("%d goroutines for %d connections at most", have-before, maxConns)
	}
}

// trySend sends a packet without payload, or returns false when the device has
// stopped taking packets.
func (r *rig) trySend(h header) bool {
	const most, stands = 64, 200 * time.Millisecond
	d := r.queues[transmitQueue]
	for end := time.Now().Add(stands); d.AvailIndex()-d.UsedIndex() > most; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return false
		}
	}
	r.send(h, nil)
	return true
}

// A guest that sends without reading makes answers pile up to their bound. The
// device can be paused all the same.
func TestPauseWithAnswersThatNobodyTakes(t *testing.T) {
	r := newRigWith(t, 0, nil)
	sent := 0
	for r.trySend(header{srcPort: uint32(sent), dstPort: 99, op: opData}) {
		if sent++; sent > 2*maxReplies {
			t.Fatal("answers pile up without bound")
		}
	}
	paused := make(chan struct{})
	go func() { r.dev.Pause(); close(paused) }()
	select {
	case <-paused:
	case <-time.After(patience):
		t.Fatal("pause hangs")
	}
	r.dev.Resume()
	// With buffers every answer comes.
	for range rxBuffers {
		r.offer(r.queues[receiveQueue].Writable(rxSize))
	}
	for range sent {
		r.expect(opReset)
	}
}
