package block

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/queue/queuetest"
)

const benchSize = 256 << 20

// load is what a benchmark's driver asks for.
type load struct {
	kind  uint32
	size  int
	depth int
}

func (l load) String() string {
	op := "read"
	if l.kind == typeOut {
		op = "write"
	}
	return fmt.Sprintf("%s%dk/depth=%d", op, l.size>>10, l.depth)
}

var loads = []load{
	{typeIn, 4 << 10, 1}, {typeIn, 4 << 10, 32},
	{typeOut, 4 << 10, 1}, {typeOut, 4 << 10, 32},
	{typeIn, 1 << 20, 1}, {typeIn, 1 << 20, 8},
	{typeOut, 1 << 20, 1}, {typeOut, 1 << 20, 8},
}

// benchDriver keeps depth requests in flight, each with its own buffers: the
// header, data in pieces of at most 128 KiB, and the status.
type benchDriver struct {
	*rig
	load
	chains [][]queuetest.Buffer
	free   []int
	sender map[uint16]int
	next   int
	rnd    *rand.Rand
}

func newBenchDriver(r *rig, l load) *benchDriver {
	d := &benchDriver{rig: r, load: l, sender: map[uint16]int{}, rnd: rand.New(rand.NewPCG(1, 2))}
	for i := range l.depth {
		chain := []queuetest.Buffer{r.header(l.kind, 0)}
		for left := l.size; left > 0; left -= 128 << 10 {
			data := r.Writable(uint32(min(left, 128<<10)))
			data.Write = l.kind == typeIn
			chain = append(chain, data)
		}
		d.chains = append(d.chains, append(chain, r.statusBuffer()))
		d.free = append(d.free, i)
	}
	return d
}

// fill sends up to limit requests, as many as are free: at random places, or
// one behind the other where they are large.
func (d *benchDriver) fill(limit int) (sent int) {
	for len(d.free) > 0 && sent < limit {
		k := d.free[len(d.free)-1]
		d.free = d.free[:len(d.free)-1]
		off := d.rnd.IntN(benchSize/d.size) * d.size
		if d.size >= 1<<20 {
			off, d.next = d.next, (d.next+d.size)%benchSize
		}
		if err := d.Mem.WriteAt(encodeHeader(d.kind, uint64(off/512)), d.chains[k][0].GPA); err != nil {
			d.t.Fatal(err)
		}
		d.sender[d.Add(d.chains[k]...)] = k
		sent++
	}
	return sent
}

// reap takes what is answered.
func (d *benchDriver) reap() (got int) {
	for {
		head, _, ok := d.Used()
		if !ok {
			return got
		}
		d.free = append(d.free, d.sender[head])
		got++
	}
}

// BenchmarkServe runs the device on the driver's own goroutine: what a request
// costs the worker, with neither kick nor interrupt nor another CPU.
// cpu-ns/op is the thread's own time, which a busy host does not change.
func BenchmarkServe(b *testing.B) {
	for place, dir := range places(b) {
		for layers := 1; layers <= 2; layers++ {
			for _, l := range loads {
				b.Run(fmt.Sprintf("%s/layers=%d/%v", place, layers, l), func(b *testing.B) {
					dev, _ := benchDevice(b, dir, layers)
					r := newIdleRig(b, dev)
					s := newServer(dev, virtio.Activation{Features: dev.Features(), Queues: []virtio.Queue{{Queue: r.Queue()}}, Interrupt: r.irq})
					d := newBenchDriver(r, l)
					runtime.LockOSThread()
					defer runtime.UnlockOSThread()
					b.SetBytes(int64(l.size))
					b.ReportAllocs()
					b.ResetTimer()
					before := cpuTime(unix.RUSAGE_THREAD)
					for got := 0; got < b.N; {
						d.fill(b.N - got)
						if _, err := s.Serve(); err != nil {
							b.Fatal(err)
						}
						got += d.reap()
					}
					b.ReportMetric(float64(cpuTime(unix.RUSAGE_THREAD)-before)/float64(b.N), "cpu-ns/op")
				})
			}
		}
	}
}

// BenchmarkWorker runs the device as it is used, against a driver that sleeps
// until an interrupt comes when nothing is left to do. cold reads come from
// the host's storage, past the page cache.
func BenchmarkWorker(b *testing.B) {
	dir := b.TempDir()
	for _, cold := range []bool{false, true} {
		for _, l := range loads {
			if cold && l.kind != typeIn {
				continue
			}
			b.Run(fmt.Sprintf("cold=%v/%v", cold, l), func(b *testing.B) {
				dev, file := benchDevice(b, dir, 1)
				d := newBenchDriver(newRig(b, dev), l)
				b.SetBytes(int64(l.size))
				b.ReportAllocs()
				b.ResetTimer()
				before := cpuTime(unix.RUSAGE_SELF)
				for sent, got := 0, 0; got < b.N; {
					if cold && sent%1024 < l.depth {
						dropCache(b, file)
					}
					avail := d.AvailIndex()
					if n := d.fill(b.N - sent); n > 0 {
						sent += n
						if event := d.AvailEvent(); avail+uint16(n)-event-1 < uint16(n) {
							d.kick.Signal()
						}
					}
					n := d.reap()
					if got += n; n > 0 {
						continue
					}
					d.SetUsedEvent(uint16(got))
					guestmem.Fence()
					if d.UsedIndex() == uint16(got) {
						<-d.irq.used
					}
				}
				b.ReportMetric(float64(cpuTime(unix.RUSAGE_SELF)-before)/float64(b.N), "cpu-ns/op")
				b.ReportMetric(float64(dev.Metrics().Pooled.Load())/float64(b.N), "pooled/op")
			})
		}
	}
}

// benchDevice returns a writable device and its bottom file; the top is empty when it has more
// than one layer.
func benchDevice(b *testing.B, dir string, layers int) (*Device, *os.File) {
	files := []*os.File{diskFile(b, dir, benchSize)}
	for len(files) < layers {
		files = append(files, diskFile(b, dir, 0))
	}
	b.Cleanup(func() {
		for _, f := range files {
			os.Remove(f.Name())
		}
	})
	if err := files[0].Sync(); err != nil {
		b.Fatal(err)
	}
	return newDeviceOn(b, Options{ID: "vda", Layers: files}), files[0]
}

func cpuTime(who int) int64 {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
