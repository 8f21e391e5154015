package net

import (
	"encoding/binary"
	"io"
	stdnet "net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"thaw/virtio/queue/queuetest"
)

// frameSizes are what the data path is measured with: the largest segmented
// frame, and one of Ethernet's usual size.
var frameSizes = []struct {
	name   string
	header []byte
	length int
}{
	{"64KiB", header(1, 1, 54, 1448, 34, 16, 0), 65226},
	{"1500B", plain, 1514},
}

// tcpFrame is an IPv4 TCP frame for nobody: the host's stack drops it as soon
// as it has looked at the address.
func tcpFrame(n int) []byte {
	p := make([]byte, n)
	copy(p, []byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0})
	ip := p[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	binary.BigEndian.PutUint16(ip[2:], uint16(n-14))
	copy(ip[12:], []byte{10, 9, 0, 2, 10, 9, 0, 1})
	ip[20+12] = 5 << 4
	return p
}

// meter adds up the time that the device's own code takes, kernel included,
// apart from the driver's. It is one thread's: the other end costs nothing.
type meter time.Duration

func (m *meter) run(f func()) {
	start := time.Now()
	f()
	*m += meter(time.Since(start))
}

func (m *meter) report(b *testing.B, length int) {
	ns := float64(*m) / float64(b.N)
	b.ReportMetric(ns, "device-ns/frame")
	b.ReportMetric(float64(length)*8/ns, "device-Gbit/s")
}

// BenchmarkSend is guest to host: frames of as many pages as a Linux guest
// would use, to a host that drops them.
func BenchmarkSend(b *testing.B) {
	for _, size := range frameSizes {
		b.Run(size.name, func(b *testing.B) {
			x := newIdlePort(b, newNamespace(b, "10.9.0.1/24"), queuetest.Memory(b, 4<<20), 0)
			s := newSender(x.act, x.dev.fd, &x.dev.metrics.Send)
			p := append(slices.Clone(size.header), tcpFrame(size.length)...)
			var pieces []queuetest.Buffer
			for at := 0; at < len(p); at += postSize {
				pieces = append(pieces, x.tx.Readable(p[at:min(at+postSize, len(p))]))
			}
			var m meter
			b.ResetTimer()
			for done := 0; done < b.N; {
				n := min(b.N-done, queueSize/len(pieces))
				for range n {
					x.tx.Add(pieces...)
				}
				m.run(func() {
					for worked := true; worked; {
						worked, _ = s.Serve()
					}
				})
				for range n {
					x.tx.Used()
				}
				done += n
			}
			m.report(b, size.length)
			if c := x.dev.Metrics().Counters(); c.SendFrames != uint64(b.N) {
				b.Errorf("counters %+v", c)
			}
		})
	}
}

// BenchmarkReceive is host to guest: the tap's queue is filled, then a driver
// with buffers of one page each, as Linux gives for large frames, empties it.
func BenchmarkReceive(b *testing.B) {
	for _, size := range frameSizes {
		b.Run(size.name, func(b *testing.B) {
			x := newIdlePort(b, newNamespace(b, "10.9.0.1/24"), queuetest.Memory(b, 4<<20), 0)
			r := newReceiver(x.act, x.dev.fd, &x.dev.metrics.Receive)
			r.prepare()
			fd := x.ns.packetSocket()
			p := append(slices.Clone(size.header[:offNumBuffers]), tcpFrame(size.length)...)
			var m meter
			b.ResetTimer()
			for done := 0; done < b.N; {
				n := min(b.N-done, 400)
				for range n {
					if _, err := unix.Write(fd, p); err != nil {
						b.Fatal(err)
					}
				}
				for st := more; st != drained; {
					m.run(func() { st, _ = r.serve() })
					for {
						if _, _, ok := x.rx.Used(); !ok {
							break
						}
						post := x.posted[0]
						x.posted = append(x.posted[1:], receivePost{x.rx.Add(post.buf), post.buf})
					}
				}
				done += n
			}
			m.report(b, size.length)
			if c := x.dev.Metrics().Counters(); c.ReceiveFrames < uint64(b.N) {
				b.Errorf("counters %+v for %d frames", c, b.N)
			}
		})
	}
}

// BenchmarkTCP is a stream between two kernels over two devices: four data
// paths, both kernels' stacks and the cable share the processors.
func BenchmarkTCP(b *testing.B) {
	w := newCable(b, newNamespace(b, "10.9.0.1/24"), newNamespace(b, "10.9.0.2/24"))
	client, server := w.connect(b, "tcp4", "10.9.0.2:7000")
	const chunk = 1 << 20
	b.SetBytes(chunk)
	b.ResetTimer()
	go func() {
		p := make([]byte, chunk)
		for range b.N {
			if _, err := client.Write(p); err != nil {
				return
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, server, int64(b.N)*chunk); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRoundTrip sends datagrams to a guest that returns them, one at a
// time: receive, one turn of the driver, send.
func BenchmarkRoundTrip(b *testing.B) {
	x := newTapBench(b)
	fd := -1 // a blocking socket: Go's poller would be measured as well
	x.ns.do(func() (err error) {
		peer := stdnet.IPv4(10, 9, 0, 9)
		if err = netlink.NeighAdd(&netlink.Neigh{
			LinkIndex: x.ns.index, State: netlink.NUD_PERMANENT, IP: peer,
			HardwareAddr: stdnet.HardwareAddr{2, 0, 0, 0, 0, 1},
		}); err == nil {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		}
		if err == nil {
			err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
		}
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: 7, Addr: [4]byte(peer.To4())})
		}
		return err
	})
	defer unix.Close(fd)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		x.echo(stop)
	}()
	p := make([]byte, 64)
	times := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for range b.N {
		start := time.Now()
		if _, err := unix.Write(fd, p); err != nil {
			b.Fatal(err)
		}
		if _, err := unix.Read(fd, p); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	b.StopTimer()
	close(stop)
	<-stopped
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds()), "p99-ns")
}

// newTapBench is a port on a namespace of its own.
func newTapBench(b *testing.B) *port {
	b.Helper()
	return newPort(b, newNamespace(b, "10.9.0.1/24"), queuetest.Memory(b, 4<<20), 0)
}

// echo returns each UDP datagram to where it came from.
func (p *port) echo(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		for {
			if _, _, ok := p.tx.Used(); !ok {
				break
			}
			b := p.sending[0][0]
			p.sending = p.sending[1:]
			b.Len, b.Write = postSize, true
			p.posted = append(p.posted, receivePost{p.rx.Add(b), b})
			p.kick(receiveQueue, p.rx)
		}
		_, n, ok := p.rx.Used()
		if !ok {
			runtime.Gosched()
			continue
		}
		b := p.posted[0].buf
		p.posted = p.posted[1:]
		f, err := p.rx.Mem.Slice(b.GPA+headerSize, uint64(n)-headerSize)
		if err != nil {
			panic(err)
		}
		if len(f) >= 42 && f[12] == 8 && f[13] == 0 {
			swap(f[0:6], f[6:12])    // Ethernet
			swap(f[26:30], f[30:34]) // IPv4
			swap(f[34:36], f[36:38]) // UDP; no sum changes
		}
		b.Len, b.Write = n, false
		p.tx.Add(b)
		p.sending = append(p.sending, []queuetest.Buffer{b})
		p.kick(sendQueue, p.tx)
	}
}

func swap(a, b []byte) {
	for i := range a {
		a[i], b[i] = b[i], a[i]
	}
}
