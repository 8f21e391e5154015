package net

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	stdnet "net"
	"sync/atomic"
	"testing"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/queue/queuetest"
)

// port is a device on a namespace's tap, and the driver's side of it.
type port struct {
	ns     *namespace
	dev    *Device
	rx, tx *queuetest.Driver
	kicks  [2]func()
	irq    *interrupts
	act    virtio.Activation

	posted  []receivePost // receive buffers, oldest first
	sending [][]queuetest.Buffer
	pieces  int // descriptors of chains under way in tx
	kicked  [2]uint16
}

// cable joins two ports as a network cable would: what one receives, the
// other sends, without copying, since both have the same guest memory. So two
// kernels' TCP talk through four data paths.
type cable struct {
	ports [2]*port
	stop  atomic.Bool
	done  chan struct{}
}

const (
	postSize  = 4096
	postCount = 200
)

// newPort returns a port with receive buffers posted and the device active.
func newPort(t testing.TB, ns *namespace, mem *guestmem.Memory, base uint64) *port {
	t.Helper()
	p := newIdlePort(t, ns, mem, base)
	if err := p.dev.Activate(p.act); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.dev.Reset)
	return p
}

// newIdlePort is newPort with the device inactive, for what calls its parts
// itself.
func newIdlePort(t testing.TB, ns *namespace, mem *guestmem.Memory, base uint64) *port {
	t.Helper()
	dev, err := New(ns.tap, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	p := &port{
		ns: ns, dev: dev, irq: newInterrupts(),
		rx: queuetest.New(t, mem, base, 2<<20, queueSize),
		tx: queuetest.New(t, mem, base+2<<20, 1<<20, queueSize),
	}
	p.act = virtio.Activation{Memory: mem, Features: dev.Features(), Interrupt: p.irq}
	for i, d := range []*queuetest.Driver{p.rx, p.tx} {
		kick := newKick(t)
		p.kicks[i] = func() { kick.Signal() }
		p.act.Queues = append(p.act.Queues, virtio.Queue{Queue: d.Queue(), Kick: kick})
	}
	for range postCount {
		b := p.rx.Writable(postSize)
		p.posted = append(p.posted, receivePost{p.rx.Add(b), b})
	}
	return p
}

func newCable(t testing.TB, a, b *namespace) *cable {
	t.Helper()
	mem := queuetest.Memory(t, 8<<20)
	c := &cable{done: make(chan struct{})}
	c.ports[0] = newPort(t, a, mem, 0)
	c.ports[1] = newPort(t, b, mem, 4<<20)
	go func() {
		defer close(c.done)
		for !c.stop.Load() {
			c.forward(c.ports[0], c.ports[1])
			c.forward(c.ports[1], c.ports[0])
		}
	}()
	t.Cleanup(func() {
		c.stop.Store(true)
		<-c.done
	})
	return c
}

// forward moves what from received to to.
func (c *cable) forward(from, to *port) {
	for {
		if _, _, ok := to.tx.Used(); !ok {
			break
		}
		for _, b := range to.sending[0] {
			to.pieces--
			b.Len, b.Write = postSize, true
			from.posted = append(from.posted, receivePost{from.rx.Add(b), b})
		}
		to.sending = to.sending[1:]
		from.kick(receiveQueue, from.rx)
	}
	for to.pieces <= queueSize-20 {
		_, n, ok := from.rx.Used()
		if !ok {
			break
		}
		head, err := from.rx.Mem.Slice(from.posted[0].buf.GPA, headerSize)
		if err != nil {
			panic(err)
		}
		chains := int(binary.LittleEndian.Uint16(head[offNumBuffers:]))
		var buffers []queuetest.Buffer
		for i := range chains {
			for i > 0 {
				if _, n, ok = from.rx.Used(); ok {
					break
				}
			}
			b := from.posted[0].buf
			b.Len, b.Write = n, false
			buffers = append(buffers, b)
			from.posted = from.posted[1:]
		}
		to.tx.Add(buffers...)
		to.sending = append(to.sending, buffers)
		to.pieces += chains
		to.kick(sendQueue, to.tx)
	}
}

// kick signals the device if it asked for it.
func (p *port) kick(q int, d *queuetest.Driver) {
	now, event := d.AvailIndex(), d.AvailEvent()
	if now-event-1 < now-p.kicked[q] {
		p.kicks[q]()
	}
	p.kicked[q] = now
}

// connect returns the two ends of a TCP connection over the cable.
func (c *cable) connect(t testing.TB, network, address string) (client, server stdnet.Conn) {
	t.Helper()
	var l stdnet.Listener
	c.ports[1].ns.do(func() (err error) {
		l, err = stdnet.Listen(network, address)
		return err
	})
	defer l.Close()
	c.ports[0].ns.do(func() (err error) {
		client, err = stdnet.Dial(network, address)
		return err
	})
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// TestTCP sends known bytes both ways through two devices, over IPv4 and
// IPv6: checksums and segmentation are left to the far end, so every header
// has to be right.
func TestTCP(t *testing.T) {
	for _, c := range []struct{ name, a, b, network, address string }{
		{"IPv4", "10.9.0.1/24", "10.9.0.2/24", "tcp4", "10.9.0.2:7000"},
		{"IPv6", "fd00:9::1/64", "fd00:9::2/64", "tcp6", "[fd00:9::2]:7000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newNamespace(t, c.a), newNamespace(t, c.b)
			w := newCable(t, a, b)
			client, server := w.connect(t, c.network, c.address)
			sums := make(chan string, 4)
			for i, way := range [][2]stdnet.Conn{{client, server}, {server, client}} {
				go func() { sums <- pour(way[0], uint64(i), 32<<20) }()
				go func() { sums <- drain(way[1], 32<<20) }()
			}
			seen := map[string]int{}
			for range 4 {
				seen[<-sums]++
			}
			for s, n := range seen {
				if n != 2 {
					t.Errorf("%s seen %d times of 2", s, n)
				}
			}
			for i, p := range w.ports {
				m := p.dev.Metrics().Counters()
				t.Logf("port %d: %+v", i, m)
				if m.SendMalformed+m.SendRefused+m.SendOversize+m.SendRunts+m.ReceiveOversize != 0 {
					t.Errorf("port %d dropped frames", i)
				}
				if m.ReceiveBytes/m.ReceiveFrames < 1600 && m.SendBytes/m.SendFrames < 1600 {
					t.Errorf("port %d: frames were not left unsegmented", i)
				}
			}
		})
	}
}

// pour writes n pseudo-random bytes and returns their digest, or the error.
func pour(w io.Writer, seed uint64, n int64) string {
	h := sha256.New()
	_, err := io.Copy(io.MultiWriter(w, h), io.LimitReader(rand.NewChaCha8([32]byte{byte(seed)}), n))
	return digest(h, err)
}

func drain(r io.Reader, n int64) string {
	h := sha256.New()
	_, err := io.CopyN(h, r, n)
	return digest(h, err)
}

func digest(h hash.Hash, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
