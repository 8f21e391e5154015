package vsock

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"thaw/virtio"
)

// quiet is how long is waited for what should not happen.
const quiet = 30 * time.Millisecond

// ask asks for a connection to the guest's port, and does not wait for it.
func (r *rig) ask(port uint32) net.Conn {
	r.t.Helper()
	c, err := net.Dial("unix", r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CONNECT %d\n", port)
	return c
}

// silent checks that the guest gets no packet for a while.
func (r *rig) silent(why string) {
	r.t.Helper()
	before := r.queues[receiveQueue].UsedIndex()
	time.Sleep(quiet)
	if r.queues[receiveQueue].UsedIndex() != before {
		r.t.Errorf("a packet %s", why)
	}
}

// event waits for the transport reset event.
func (r *rig) event() {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, n, ok := r.queues[eventQueue].Used(); ok {
			if n != eventSize {
				r.t.Errorf("event of %d bytes", n)
			}
			return
		}
	}
	r.t.Fatal("no transport reset event")
}

// giveBack gives the device a buffer for an event.
func (r *rig) giveBack() {
	q := r.queues[eventQueue]
	old := q.AvailIndex()
	q.Add(q.Writable(eventSize))
	if q.AvailEvent() == old { // a driver kicks no more often than it has to
		r.kicks[eventQueue].Signal()
	}
}

// A guest that had connections is told of their end, and nobody connects to it
// before it has taken that in, nor it to anybody.
func TestRestoreTellsTheGuest(t *testing.T) {
	theirs, ours := socketPair(t)
	r := newRig(t, func(uint32) (*os.File, error) { return theirs, nil })
	old, oldPorts := r.dial(1, 1<<20)
	s, queues := r.save()
	if s.Connections != 1 || s.NextPort != oldPorts.host+1 {
		t.Errorf("saved %+v after a connection between %+v", s, oldPorts)
	}
	r.dev.Reset()
	early := r.ask(2)
	r.restore(s, queues)
	if _, err := old.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("connection of before: %v", err)
	}
	late := r.ask(3)
	time.Sleep(quiet)
	if _, _, ok := r.queues[eventQueue].Used(); ok {
		t.Fatal("event while paused")
	}
	r.dev.Resume()
	r.event()
	r.send(header{srcPort: 50, dstPort: 1025, op: opRequest, bufAlloc: 4}, nil)
	r.silent("before the event was taken")

	// Saved in the middle, it goes on in the same way.
	if s, queues = r.save(); s.Connections == 0 {
		t.Error("no connections saved, though the guest has not heard of their end")
	}
	r.restore(s, queues)
	r.dev.Resume()
	r.event()
	r.silent("before the second event was taken")
	r.giveBack()
	ports := map[uint32]bool{}
	for range 2 {
		h, _ := r.expect(opRequest)
		if h.srcPort <= oldPorts.host {
			t.Errorf("port %d again", h.srcPort)
		}
		r.send(header{srcPort: h.dstPort, dstPort: h.srcPort, op: opResponse, bufAlloc: 1 << 20}, nil)
		ports[h.dstPort] = true
	}
	for port, c := range map[uint32]net.Conn{2: early, 3: late} {
		if _, err := fmt.Fscanf(c, "OK %d\n", new(uint32)); err != nil || !ports[port] {
			t.Errorf("connection to port %d: %v", port, err)
		}
	}
	r.send(header{srcPort: 51, dstPort: 1025, op: opRequest, bufAlloc: 4}, nil)
	r.expect(opResponse)
	ours.Close()
}

// A guest without connections is told nothing, and may be connected to at once.
func TestRestoreWithoutConnections(t *testing.T) {
	r := newRig(t, nil)
	c, p := r.dial(1, 1<<20)
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opReset}, nil)
	io.ReadAll(c)
	s, queues := r.save()
	if s.Connections != 0 {
		t.Fatalf("%d connections saved", s.Connections)
	}
	r.restore(s, queues)
	early := r.ask(4)
	r.silent("while paused")
	r.dev.Resume()
	h, _ := r.expect(opRequest)
	r.send(header{srcPort: h.dstPort, dstPort: h.srcPort, op: opResponse, bufAlloc: 1 << 20}, nil)
	if _, err := fmt.Fscanf(early, "OK %d\n", new(uint32)); err != nil {
		t.Error(err)
	}
	if r.queues[eventQueue].UsedIndex() != 0 {
		t.Error("an event for nothing")
	}
}

// An event for which the driver has no buffer waits for one.
func TestEventWithoutBuffer(t *testing.T) {
	r := newRig(t, nil)
	r.dial(1, 1<<20)
	s, queues := r.save()
	q := &queues[eventQueue]
	q.Next, q.Pushed = r.queues[eventQueue].AvailIndex(), r.queues[eventQueue].AvailIndex()
	r.restore(s, queues)
	r.dev.Resume()
	c := r.ask(2)
	r.silent("before there was an event")
	before := r.queues[eventQueue].UsedIndex()
	r.giveBack()
	for end := time.Now().Add(patience); r.queues[eventQueue].UsedIndex() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the event is lost")
		}
	}
	r.silent("before the event was taken")
	r.giveBack()
	r.expect(opRequest)
	c.Close()
}

// A guest that never takes the event is not connected to, and who asks for it does
// not wait for ever.
func TestEventNeverTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for a time-out")
	}
	t.Parallel()
	r := newRig(t, nil)
	r.dial(1, 1<<20)
	s, queues := r.save()
	r.restore(s, queues)
	r.dev.Resume()
	c := r.ask(2)
	c.SetDeadline(time.Now().Add(connectTimeout + patience))
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("read %q, %v", b, err)
	}
}

// A reset that the guest has still to be sent counts as a connection that it
// believes in.
func TestResetOnItsWay(t *testing.T) {
	r := newRigWith(t, 1, nil)
	c := r.ask(1)
	h := r.takeOne()
	r.send(header{srcPort: h.dstPort, dstPort: h.srcPort, op: opResponse, bufAlloc: 1 << 20}, nil)
	if _, err := fmt.Fscanf(c, "OK %d\n", new(uint32)); err != nil {
		t.Fatal(err)
	}
	// A violation: the connection is forgotten, and the reset finds no buffer.
	r.send(header{srcPort: h.dstPort, dstPort: h.srcPort, op: 77}, nil)
	io.ReadAll(c)
	if s, _ := r.save(); s.Connections != 1 {
		t.Errorf("%d connections saved", s.Connections)
	}
}

// takeOne returns the next packet and gives no buffer for it.
func (r *rig) takeOne() header {
	r.t.Helper()
	d := r.queues[receiveQueue]
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if head, n, ok := d.Used(); ok {
			return parseHeader((*[headerSize]byte)(d.Bytes(r.rx[head])[:n]))
		}
	}
	r.t.Fatal("no packet for the guest")
	return header{}
}

// What the driver made available before the save, and was not served, is served
// after the restore, with no kick to tell of it.
func TestQueuesAfterRestore(t *testing.T) {
	r := newRig(t, nil)
	r.dev.Pause()
	for i := range uint32(3) {
		r.send(header{srcPort: 50 + i, dstPort: 99, op: opRequest}, nil)
	}
	s, queues := r.save()
	r.restore(s, queues)
	r.silent("while paused")
	r.dev.Resume()
	for i := range uint32(3) {
		if h, _ := r.expect(opReset); h.dstPort != 50+i {
			t.Errorf("reset %+v", h)
		}
	}
}

// Neither Pause nor Reset waits for the host to answer a connection of the
// guest's: the answer may come from who waits for them.
func TestHostThatDoesNotAnswer(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	theirs, ours := socketPair(t)
	r := newRig(t, func(uint32) (*os.File, error) {
		close(asked)
		<-answer
		return theirs, nil
	})
	r.send(header{srcPort: 50, dstPort: 1025, op: opRequest, bufAlloc: 4}, nil)
	<-asked
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.dev.Pause()
		r.dev.Resume()
		r.dev.Reset()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the device waits for the host")
	}
	close(answer)
	// Nobody wants it any more: it is closed.
	if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the host's end: %v", err)
	}
}

// Answers that do not come are bounded over all devices that there were.
func TestDialsAreBounded(t *testing.T) {
	answer := make(chan struct{})
	r := newRig(t, func(uint32) (*os.File, error) { <-answer; return nil, errors.New("late") })
	defer close(answer)
	for range 3 {
		for i := range uint32(maxConns) {
			if !r.trySend(header{srcPort: 5000 + i, dstPort: 99, op: opRequest}) {
				break
			}
		}
		s, queues := r.save()
		s.Connections = 0
		r.restore(s, queues)
		r.dev.Resume()
	}
	if n := len(r.host.dials); n > maxConns {
		t.Errorf("%d calls wait", n)
	}
}

func TestRestoreRefuses(t *testing.T) {
	for name, s := range map[string]State{
		"other context id":     {CID: guestCID + 1},
		"too many connections": {CID: guestCID, Connections: maxConns + 1, NextPort: firstHostPort},
		"port of the guest's":  {CID: guestCID, NextPort: 1024},
	} {
		if _, err := Restore(Options{CID: guestCID}, s); !errors.Is(err, virtio.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
