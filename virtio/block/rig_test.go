package block

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue/queuetest"
)

const (
	memorySize = 64 << 20
	driverBase = 1 << 20
)

// rig is a driver with a device on the other side.
type rig struct {
	*queuetest.Driver
	t      testing.TB
	dev    *Device
	kick   *virtio.Kick
	irq    *interrupts
	bottom *os.File // of newRigOn
}

// interrupts is a driver's side of the interrupt.
type interrupts struct {
	used   chan struct{}
	broken chan error
}

func newInterrupts() *interrupts {
	return &interrupts{used: make(chan struct{}, 1), broken: make(chan error, 1)}
}

func (i *interrupts) Used() {
	select {
	case i.used <- struct{}{}:
	default:
	}
}

func (i *interrupts) ConfigChanged() {}

func (i *interrupts) NeedsReset(err error) { i.broken <- err }

// newRig activates dev on a queue of the device's size.
func newRig(t testing.TB, dev *Device) *rig {
	t.Helper()
	r := newIdleRig(t, dev)
	r.activate(dev.Features())
	return r
}

// newRigOn makes the device as well, on the given layers.
func newRigOn(t testing.TB, layers ...*os.File) *rig {
	t.Helper()
	if err := layers[0].Sync(); err != nil { // clean pages can leave the cache
		t.Fatal(err)
	}
	dev, err := New(Options{ID: "vda", Layers: layers})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, dev)
	r.bottom = layers[0]
	return r
}

// dropCache takes a file out of the page cache and keeps the kernel from
// reading ahead.
func dropCache(t testing.TB, file *os.File) {
	t.Helper()
	for _, advice := range []int{unix.FADV_RANDOM, unix.FADV_DONTNEED} {
		if err := unix.Fadvise(int(file.Fd()), 0, 0, advice); err != nil {
			t.Fatal(err)
		}
	}
}

// newIdleRig leaves the device inactive.
func newIdleRig(t testing.TB, dev *Device) *rig {
	t.Helper()
	kick, err := virtio.NewKick()
	if err != nil {
		t.Fatal(err)
	}
	mem := queuetest.Memory(t, memorySize)
	r := &rig{
		Driver: queuetest.New(t, mem, driverBase, memorySize-driverBase, queueSize),
		t:      t, dev: dev, kick: kick, irq: newInterrupts(),
	}
	t.Cleanup(func() {
		dev.Reset()
		kick.Close()
	})
	return r
}

func (r *rig) activate(features uint64) {
	r.t.Helper()
	err := r.dev.Activate(virtio.Activation{
		Memory: r.Mem, Features: features, Interrupt: r.irq,
		Queues: []virtio.Queue{{Queue: r.Queue(), Kick: r.kick}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

// header is a request's header as the driver writes it.
func (r *rig) header(kind uint32, sector uint64) queuetest.Buffer {
	return r.Readable(encodeHeader(kind, sector))
}

func encodeHeader(kind uint32, sector uint64) []byte {
	p := make([]byte, headerLen)
	binary.LittleEndian.PutUint32(p, kind)
	binary.LittleEndian.PutUint64(p[8:], sector)
	return p
}

// send makes a chain available and kicks if the device asked for it.
func (r *rig) send(buffers ...queuetest.Buffer) {
	before := r.AvailIndex()
	r.Add(buffers...)
	if r.AvailEvent() == before {
		r.kick.Signal()
	}
}

// wait returns when the next chain is in the used ring.
func (r *rig) wait() (written uint32) {
	r.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, n, ok := r.Used(); ok {
			return n
		}
		select {
		case err := <-r.irq.broken:
			r.t.Fatalf("device needs reset: %v", err)
		default:
		}
		if time.Now().After(deadline) {
			r.t.Fatal("no answer within 10 s")
		}
		runtime.Gosched()
	}
}

// ask sends one request and returns its status; status must be the last
// buffer's last byte.
func (r *rig) ask(buffers ...queuetest.Buffer) byte {
	r.t.Helper()
	r.send(buffers...)
	r.wait()
	last := r.Bytes(buffers[len(buffers)-1])
	return last[len(last)-1]
}

// statusBuffer is one byte that no device answers by itself.
func (r *rig) statusBuffer() queuetest.Buffer {
	b := r.Writable(1)
	if err := r.Mem.WriteAt([]byte{0xff}, b.GPA); err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) read(sector uint64, n uint32) ([]byte, byte) {
	r.t.Helper()
	data := r.Writable(n)
	status := r.ask(r.header(typeIn, sector), data, r.statusBuffer())
	return r.Bytes(data), status
}

func (r *rig) write(sector uint64, p []byte) byte {
	r.t.Helper()
	return r.ask(r.header(typeOut, sector), r.Readable(p), r.statusBuffer())
}

func (r *rig) flush() byte {
	r.t.Helper()
	return r.ask(r.header(typeFlush, 0), r.statusBuffer())
}

// diskFile makes a file of size bytes in dir, filled with a pattern unless
// size is zero.
func diskFile(t testing.TB, dir string, size int) *os.File {
	t.Helper()
	f, err := os.CreateTemp(dir, "disk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(pattern(size)); err != nil {
		t.Fatal(err)
	}
	return f
}

// pattern is content in which every sector differs.
func pattern(n int) []byte {
	p := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(p[i:], uint64(i)*0x9e3779b97f4a7c15+1)
	}
	return p
}

// places are where disk files are kept: a file system in memory and one on a
// device, which differ in what can block.
func places(t testing.TB) map[string]string {
	t.Helper()
	dirs := map[string]string{"disk": t.TempDir()}
	if dir, err := os.MkdirTemp("/dev/shm", "block"); err == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		dirs["tmpfs"] = dir
	}
	return dirs
}

func newDeviceOn(t testing.TB, options Options) *Device {
	t.Helper()
	dev, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func content(t testing.TB, f *os.File) []byte {
	t.Helper()
	p, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return p
}
