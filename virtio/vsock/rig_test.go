package vsock

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

const (
	guestCID  = 3
	rxBuffers = 64
	rxSize    = 4096
	patience  = 5 * time.Second
)

// rig is an active device with the driver's side of its queues.
type rig struct {
	t      testing.TB
	dev    *Device
	host   *Host
	opts   Options
	path   string // of the listener
	active virtio.Activation
	queues [3]*queuetest.Driver
	kicks  [3]*virtio.Kick
	rx     []queuetest.Buffer // by head
	broken atomic.Pointer[error]
}

func (r *rig) Used()                {}
func (r *rig) ConfigChanged()       {}
func (r *rig) NeedsReset(err error) { r.broken.Store(&err) }

func newRig(t testing.TB, connect func(uint32) (*os.File, error)) *rig {
	t.Helper()
	return newRigWith(t, rxBuffers, connect)
}

// newRigWith makes a rig whose guest gives a number of receive buffers.
func newRigWith(t testing.TB, buffers int, connect func(uint32) (*os.File, error)) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "vsock")}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	r.host = NewHost(listener)
	r.opts = Options{CID: guestCID, Host: r.host, Connect: connect}
	if r.dev, err = New(r.opts); err != nil {
		t.Fatal(err)
	}
	r.activate(buffers)
	t.Cleanup(func() {
		r.dev.Reset()
		r.host.Close()
	})
	return r
}

// newKicks makes kicks, with nothing on the way in them.
func (r *rig) newKicks() {
	r.t.Helper()
	for i := range r.kicks {
		k, err := virtio.NewKick()
		if err != nil {
			r.t.Fatal(err)
		}
		r.kicks[i] = k
		r.t.Cleanup(func() {
			r.dev.Reset()
			k.Close()
		})
	}
}

// save pauses the device and returns its state and that of its queues.
func (r *rig) save() (State, []queue.State) {
	r.dev.Pause()
	var queues []queue.State
	for _, q := range r.active.Queues {
		queues = append(queues, q.State())
	}
	return r.dev.State(), queues
}

// restore replaces the device by what was saved of it, paused. The kicks are new
// ones.
func (r *rig) restore(s State, queues []queue.State) {
	r.t.Helper()
	r.dev.Reset()
	dev, err := Restore(r.opts, s)
	if err != nil {
		r.t.Fatal(err)
	}
	r.dev = dev
	r.newKicks()
	for i, q := range queues {
		ring, err := queue.Restore(r.active.Memory, q)
		if err != nil {
			r.t.Fatal(err)
		}
		r.active.Queues[i] = virtio.Queue{Queue: ring, Kick: r.kicks[i]}
	}
	r.active.Paused = true
	if err := dev.Activate(r.active); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) activate(buffers int) {
	r.newKicks()
	mem := queuetest.Memory(r.t, 32<<20)
	a := virtio.Activation{Memory: mem, Features: virtio.FeatureVersion1, Interrupt: r}
	for i := range r.queues {
		r.queues[i] = queuetest.New(r.t, mem, uint64(i)*(8<<20), 8<<20, 256)
		a.Queues = append(a.Queues, virtio.Queue{Queue: r.queues[i].Queue(), Kick: r.kicks[i]})
	}
	r.rx = make([]queuetest.Buffer, 256)
	for range buffers {
		r.offer(r.queues[receiveQueue].Writable(rxSize))
	}
	event := r.queues[eventQueue]
	event.Add(event.Writable(4))
	event.Add(event.Writable(4))
	r.active = a
	if err := r.dev.Activate(a); err != nil {
		r.t.Fatal(err)
	}
}

// offer gives the device a buffer for a packet.
func (r *rig) offer(b queuetest.Buffer) {
	r.rx[r.queues[receiveQueue].Add(b)] = b
	r.kicks[receiveQueue].Signal()
}

// send sends a packet as the guest.
func (r *rig) send(h header, payload []byte) {
	h.srcCID, h.dstCID, h.kind, h.length = guestCID, hostCID, typeStream, uint32(len(payload))
	r.sendRaw(h, payload)
}

func (r *rig) sendRaw(h header, payload []byte) {
	var b [headerSize]byte
	h.encode(&b)
	d := r.queues[transmitQueue]
	d.Add(d.Readable(b[:]), d.Readable(payload))
	r.kicks[transmitQueue].Signal()
}

// receive returns the next packet for the guest.
func (r *rig) receive() (header, []byte) {
	r.t.Helper()
	d := r.queues[receiveQueue]
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		head, n, ok := d.Used()
		if !ok {
			continue
		}
		b := d.Bytes(r.rx[head])[:n]
		r.offer(r.rx[head])
		h := parseHeader((*[headerSize]byte)(b))
		return h, b[headerSize:]
	}
	r.t.Fatal("no packet for the guest")
	return header{}, nil
}

// expect receives packets until one has the given operation.
func (r *rig) expect(op uint16) (header, []byte) {
	r.t.Helper()
	h, payload := r.receive()
	if h.op != op || h.srcCID != hostCID || h.dstCID != guestCID {
		r.t.Fatalf("packet %+v, want operation %d", h, op)
	}
	return h, payload
}

// dial connects to the guest's port from the host, with the guest accepting.
func (r *rig) dial(port, bufAlloc uint32) (*net.UnixConn, pair) {
	r.t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: r.path, Net: "unix"})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(c, "CONNECT %d\n", port)
	h, _ := r.receive()
	for h.op == opReset { // the answer to something before
		h, _ = r.receive()
	}
	if h.op != opRequest {
		r.t.Fatalf("packet %+v, want a request", h)
	}
	p := pair{host: h.srcPort, guest: h.dstPort}
	r.send(header{srcPort: p.guest, dstPort: p.host, op: opResponse, bufAlloc: bufAlloc}, nil)
	var host uint32
	if _, err := fmt.Fscanf(c, "OK %d\n", &host); err != nil || host != p.host {
		r.t.Fatalf("answer to CONNECT: port %d, %v", host, err)
	}
	return c, p
}

// socketPair returns both ends of a stream.
func socketPair(t testing.TB) (*os.File, *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := unixConn(os.NewFile(uintptr(fds[1]), "ours"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	ours.SetDeadline(time.Now().Add(patience))
	return os.NewFile(uintptr(fds[0]), "theirs"), ours
}
