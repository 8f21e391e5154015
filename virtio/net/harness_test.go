package net

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if left := leaked(); len(left) > 0 {
			fmt.Fprintf(os.Stderr, "taps or namespaces left open: %v\n", left)
			code = 1
		}
		os.Exit(code)
	}))
}

// leaked lists open descriptors of taps and of network namespaces.
func leaked() (left []string) {
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, fd := range fds {
		what, _ := os.Readlink(fd)
		if what == "/dev/net/tun" || strings.HasPrefix(what, "net:[") {
			left = append(left, what)
		}
	}
	return left
}

var testOptions = Options{MAC: [6]byte{2, 0, 0, 0, 0, 1}, MTU: 1500, Offload: true}

// wire is a stand-in for a tap that keeps frames apart as one does: a pair of
// packet sockets. The test holds the far end.
type wire struct {
	t    testing.TB
	near *os.File
	far  int
}

func newWire(t testing.TB) *wire {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20); err != nil {
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4<<20)
		}
	}
	w := &wire{t: t, near: os.NewFile(uintptr(fds[0]), "near"), far: fds[1]}
	t.Cleanup(func() {
		w.near.Close()
		w.hangUp()
	})
	return w
}

// put sends a frame, header included, to the device.
func (w *wire) put(frame []byte) {
	w.t.Helper()
	if _, err := unix.Write(w.far, frame); err != nil {
		w.t.Fatalf("put %d bytes: %v", len(frame), err)
	}
}

// take returns the next frame that the device sent; nil after a second.
func (w *wire) take() []byte {
	w.t.Helper()
	fds := []unix.PollFd{{Fd: int32(w.far), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 1000)
		if err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return nil
		}
		break
	}
	p := make([]byte, 1<<17)
	n, err := unix.Read(w.far, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return p[:n]
}

func (w *wire) hangUp() {
	if w.far >= 0 {
		unix.Close(w.far)
		w.far = -1
	}
}

// interrupts records what the device tells the driver.
type interrupts struct {
	used, config atomic.Int32
	failed       chan error
}

func newInterrupts() *interrupts { return &interrupts{failed: make(chan error, 4)} }

func (i *interrupts) Used()                { i.used.Add(1) }
func (i *interrupts) ConfigChanged()       { i.config.Add(1) }
func (i *interrupts) NeedsReset(err error) { i.failed <- err }

// bench is a device on a wire with a driver for each queue.
type bench struct {
	*wire
	t      testing.TB
	dev    *Device
	rx, tx *queuetest.Driver
	act    virtio.Activation
	irq    *interrupts
}

// newBench returns a device that is not active yet. change may alter the
// acknowledged features.
func newBench(t testing.TB, change func(features uint64) uint64) *bench {
	t.Helper()
	w := newWire(t)
	dev, err := New(w.near, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	mem := queuetest.Memory(t, 32<<20)
	b := &bench{
		wire: w, t: t, dev: dev, irq: newInterrupts(),
		rx: queuetest.New(t, mem, 0x10000, 16<<20, queueSize),
		tx: queuetest.New(t, mem, 17<<20, 14<<20, queueSize),
	}
	features := dev.Features()
	if change != nil {
		features = change(features)
	}
	b.act = virtio.Activation{
		Memory: mem, Features: features, Interrupt: b.irq,
		Queues: []virtio.Queue{{Queue: b.rx.Queue(), Kick: newKick(t)}, {Queue: b.tx.Queue(), Kick: newKick(t)}},
	}
	return b
}

// start activates the device; the test's end resets it.
func (b *bench) start() {
	b.t.Helper()
	if err := b.dev.Activate(b.act); err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(b.dev.Reset)
}

func newKick(t testing.TB) *virtio.Kick {
	t.Helper()
	e, err := virtio.NewKick()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func (b *bench) kick(q int) {
	b.t.Helper()
	if err := b.act.Queues[q].Kick.Signal(); err != nil {
		b.t.Fatal(err)
	}
}

// eventually waits for cond.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// used waits for the next used entry.
func used(t testing.TB, d *queuetest.Driver) (head uint16, written uint32) {
	t.Helper()
	eventually(t, "a used buffer", func() bool {
		h, n, ok := d.Used()
		head, written = h, n
		return ok
	})
	return head, written
}

// header builds a virtio header.
func header(flags, gso byte, hdrLen, gsoSize, start, offset, num uint16) []byte {
	p := []byte{flags, gso}
	for _, v := range []uint16{hdrLen, gsoSize, start, offset, num} {
		p = binary.LittleEndian.AppendUint16(p, v)
	}
	return p
}

var plain = make([]byte, headerSize)

// frame returns n bytes of content that differ from place to place.
func frame(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i) ^ byte(i>>8)*31
	}
	return p
}

// receivePost is a receive buffer of the driver's.
type receivePost struct {
	head uint16
	buf  queuetest.Buffer
}

// post adds n receive buffers of size bytes each.
func (b *bench) post(n int, size uint32) []receivePost {
	posts := make([]receivePost, n)
	for i := range posts {
		buf := b.rx.Writable(size)
		posts[i] = receivePost{b.rx.Add(buf), buf}
	}
	b.kick(receiveQueue)
	return posts
}

// collect takes one frame out of the used ring, which must use the posts in
// order, and returns it and the posts that are left.
func (b *bench) collect(posts []receivePost) ([]byte, []receivePost) {
	b.t.Helper()
	var got []byte
	for i, chains := 0, 1; i < chains; i++ {
		head, n := used(b.t, b.rx)
		if len(posts) == 0 || head != posts[0].head || n > posts[0].buf.Len {
			b.t.Fatalf("used %d with %d bytes; posts left: %d", head, n, len(posts))
		}
		part := b.rx.Bytes(posts[0].buf)[:n]
		if i == 0 {
			chains = int(binary.LittleEndian.Uint16(part[offNumBuffers:]))
		}
		got = append(got, part...)
		posts = posts[1:]
	}
	return got, posts
}

// wantFrame compares a received frame, header apart, with what was sent.
func wantFrame(t testing.TB, got, payload []byte) {
	t.Helper()
	if len(got) < headerSize || !bytes.Equal(got[headerSize:], payload) {
		t.Fatalf("frame of %d bytes differs from the %d sent", len(got)-headerSize, len(payload))
	}
}

// settled checks that no chain is out of the queue.
func settled(t testing.TB, q *queue.Queue) {
	t.Helper()
	if s := q.State(); s.Next != s.Pushed {
		t.Errorf("%d chains are out of the queue", s.Next-s.Pushed)
	}
}
