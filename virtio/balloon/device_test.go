package balloon

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const memorySize = 64 << 20

// puncher is a Reclaimer that punches holes into the memfd behind a memory
// and records where.
type puncher struct {
	memory *guestmem.Memory
	file   *os.File

	mu   sync.Mutex
	runs []span // protected by mu
	fail error  // protected by mu
	keep uint64 // protected by mu; address that lies in what is not zeros afterwards, zero: none
}

func (p *puncher) Reclaim(gpa, n uint64) (zeros bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.runs = append(p.runs, span{gpa, n})
	if p.fail != nil {
		return false, p.fail
	}
	// One region from zero: address and offset are the same.
	return p.keep < gpa || p.keep >= gpa+n, unix.Fallocate(int(p.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(gpa), int64(n))
}

func (p *puncher) refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

func (p *puncher) keeps(gpa uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep = gpa
}

func (p *puncher) taken() []span {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]span(nil), p.runs...)
}

// allocated is how many bytes the memory has of the host.
func (p *puncher) allocated(t testing.TB) int64 {
	var st unix.Stat_t
	if err := unix.Fstat(int(p.file.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func newPuncher(t testing.TB) *puncher {
	t.Helper()
	fd, err := unix.MemfdCreate("balloon-test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	p := &puncher{file: os.NewFile(uintptr(fd), "memory")}
	t.Cleanup(func() { p.file.Close() })
	if err := p.file.Truncate(memorySize); err != nil {
		t.Fatal(err)
	}
	if p.memory, err = guestmem.Map(p.file, memorySize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.memory.Unmap() })
	return p
}

type interrupts struct {
	used, config atomic.Int32
	failed       chan error
}

func (i *interrupts) Used()                { i.used.Add(1) }
func (i *interrupts) ConfigChanged()       { i.config.Add(1) }
func (i *interrupts) NeedsReset(err error) { i.failed <- err }

// bench is an active balloon with a driver for each queue.
type bench struct {
	t       testing.TB
	host    *puncher
	dev     *Device
	drivers [4]*queuetest.Driver
	act     virtio.Activation
	irq     *interrupts
}

// The queues with all features.
const (
	inflate = iota
	deflate
	stats
	report
)

func newBench(t testing.TB, features uint64) *bench {
	t.Helper()
	p := newPuncher(t)
	dev, err := New(Options{MemoryBytes: memorySize, Reclaimer: p})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, host: p, dev: dev, irq: &interrupts{failed: make(chan error, 8)}}
	b.act = virtio.Activation{Memory: p.memory, Features: features, Interrupt: b.irq}
	for i := range b.drivers {
		b.drivers[i] = queuetest.New(t, p.memory, uint64(i+1)<<20, 1<<20, queueSize)
		kick, err := virtio.NewKick()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kick.Close() })
		b.act.Queues = append(b.act.Queues, virtio.Queue{Queue: b.drivers[i].Queue(), Kick: kick})
	}
	if err := dev.Activate(b.act); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Reset)
	return b
}

// call makes a chain available to queue i and waits for it to come back.
func (b *bench) call(i int, buffers ...queuetest.Buffer) (written uint32) {
	b.t.Helper()
	b.drivers[i].Add(buffers...)
	b.kick(i)
	eventually(b.t, "the answer", func() (ok bool) { _, written, ok = b.drivers[i].Used(); return ok })
	return written
}

func (b *bench) kick(i int) {
	b.t.Helper()
	if err := b.act.Queues[i].Kick.Signal(); err != nil {
		b.t.Fatal(err)
	}
}

// numbers is a buffer of page numbers.
func (b *bench) numbers(i int, pfns ...uint32) queuetest.Buffer {
	var p []byte
	for _, n := range pfns {
		p = binary.LittleEndian.AppendUint32(p, n)
	}
	return b.drivers[i].Readable(p)
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); !cond(); time.Sleep(50 * time.Microsecond) {
		if time.Now().After(end) {
			t.Fatalf("timed out waiting for %s", what)
		}
	}
}

// fill writes every page from the given one on, so that the host has it.
func (b *bench) fill(gpa, n uint64) {
	b.t.Helper()
	p := make([]byte, n)
	for i := range p {
		p[i] = 0xaa
	}
	if err := b.host.memory.WriteAt(p, gpa); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) byteAt(gpa uint64) byte {
	var p [1]byte
	if err := b.host.memory.ReadAt(p[:], gpa); err != nil {
		b.t.Fatal(err)
	}
	return p[0]
}

func TestInflate(t *testing.T) {
	b := newBench(t, features)
	b.fill(16<<20, 4<<20)
	b.call(inflate, b.numbers(inflate, 0xffffffff)) // touches the rings
	before := b.host.allocated(t)
	const first = 16 << 20 / pageSize
	// Out of order, twice, a gap, and numbers that are not RAM.
	b.call(inflate, b.numbers(inflate, first+2, first, first+1, first+1, first+8, 0xffffffff, memorySize/pageSize))
	want := []span{{16 << 20, 3 * pageSize}, {16<<20 + 8*pageSize, pageSize}}
	got := b.host.taken()
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("reclaimed %v, want %v", got, want)
	}
	if d := before - b.host.allocated(t); d != 4*pageSize {
		t.Errorf("host got %d bytes back", d)
	}
	if b.byteAt(16<<20) != 0 || b.byteAt(16<<20+3*pageSize) != 0xaa {
		t.Error("wrong pages are gone")
	}
	c := b.dev.Metrics().Counters()
	if c.Inflated != 5 || c.Invalid != 3 || c.Reclaims != 2 || c.Failed != 0 {
		t.Errorf("counters %+v", c)
	}
	b.call(deflate, b.numbers(deflate, first, first+1, 0xffffffff))
	if n := b.dev.Metrics().Deflated.Load(); n != 3 {
		t.Errorf("deflated %d", n)
	}
}

func TestInflateMarksDirty(t *testing.T) {
	b := newBench(t, features)
	dirty := guestmem.NewBitmap(memorySize)
	b.host.memory.TrackDirty(dirty)
	b.call(inflate, b.numbers(inflate, 5000, 5001))
	marked := map[uint64]bool{}
	dirty.Drain(func(p uint64) { marked[p] = true })
	if !marked[5000] || !marked[5001] || marked[5002] {
		t.Errorf("marked %v", marked)
	}
}

func TestInflateWhenTheHostRefuses(t *testing.T) {
	b := newBench(t, features)
	b.host.refuse(errors.New("no"))
	b.call(inflate, b.numbers(inflate, 5000, 6000))
	b.call(report, b.drivers[report].Writable(4096))
	if c := b.dev.Metrics().Counters(); c.Failed < 2 || c.ReportedBytes != 0 {
		t.Errorf("counters %+v", c)
	}
}

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name     string
		features uint64
		queue    int
	}{
		{"with statistics", features, report},
		{"without statistics", features &^ FeatureStats, stats}, // numbers have no gaps
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, c.features)
			b.fill(16<<20, 8<<20)
			mem := func(gpa uint64, n uint32) queuetest.Buffer {
				return queuetest.Buffer{GPA: gpa, Len: n, Write: true}
			}
			b.call(c.queue, mem(18<<20, 2<<20), mem(16<<20, 2<<20), mem(22<<20+1, 3*4096), mem(30<<20, 4095))
			got := b.host.taken()
			want := []span{{16 << 20, 4 << 20}, {22<<20 + 4096, 2 * 4096}}
			if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
				t.Fatalf("reclaimed %v, want %v", got, want)
			}
			if b.byteAt(22<<20) != 0xaa || b.byteAt(22<<20+4096) != 0 {
				t.Error("wrong pages are gone")
			}
			if m := b.dev.Metrics().Counters(); m.ReportedBytes != 4<<20+2*4096 || m.Invalid != 1 {
				t.Errorf("counters %+v", m)
			}
		})
	}
}

// A report is answered as written only when all of it is zero.
func TestReportOfZeros(t *testing.T) {
	mem := func(gpa uint64, n uint32) queuetest.Buffer {
		return queuetest.Buffer{GPA: gpa, Len: n, Write: true}
	}
	b := newBench(t, features)
	b.fill(16<<20, 8<<20)
	if n := b.call(report, mem(16<<20, 2<<20), mem(20<<20, 4<<20)); n != 6<<20 {
		t.Errorf("%d bytes are said to be zeros, want %d", n, 6<<20)
	}
	for name, buffers := range map[string][]queuetest.Buffer{
		"part of a page": {mem(16<<20, 2<<20), mem(20<<20, 4095)},
		"the same twice": {mem(16<<20, 2<<20), mem(17<<20, 2<<20)},
		"not at a page":  {mem(16<<20, 2<<20), mem(20<<20+1, 4096)},
	} {
		if n := b.call(report, buffers...); n != 0 {
			t.Errorf("%s: %d bytes are said to be zeros", name, n)
		}
	}
	b.host.keeps(20<<20 + 5)
	if n := b.call(report, mem(16<<20, 2<<20), mem(20<<20, 2<<20)); n != 0 {
		t.Errorf("%d bytes are said to be zeros, and some are not", n)
	}
	b.host.refuse(errors.New("no"))
	if n := b.call(report, mem(16<<20, 2<<20)); n != 0 {
		t.Errorf("%d bytes are said to be zeros, and are what they were", n)
	}
}

func TestTargetAndConfig(t *testing.T) {
	b := newBench(t, features)
	if err := b.dev.SetTarget(memorySize>>20 + 1); err == nil {
		t.Error("target above the memory")
	}
	if err := b.dev.SetTarget(16); err != nil {
		t.Fatal(err)
	}
	if b.irq.config.Load() != 1 || b.dev.Target() != 16 {
		t.Error("driver was not told")
	}
	for _, w := range []struct {
		offset uint32
		p      []byte
		actual uint64 // bytes
	}{
		{4, []byte{0, 8, 0, 0}, 8 << 20},
		{0, []byte{0xff, 0xff, 0xff, 0xff}, 8 << 20}, // not the driver's
		{2, []byte{0xff, 0xff, 0, 4, 0, 0}, 4 << 20},
		{7, []byte{0xff, 0xff, 0xff}, memorySize}, // nonsense is bounded
		{0xffffffff, []byte{1, 2, 3, 4, 5, 6, 7, 8}, memorySize},
	} {
		b.dev.WriteConfig(w.offset, w.p)
		if got := b.dev.Actual(); got != w.actual || b.dev.Target() != 16 {
			t.Errorf("write at %d: actual %d, want %d; target %d", w.offset, got, w.actual, b.dev.Target())
		}
	}
	s := b.dev.State()
	restored, err := Restore(Options{MemoryBytes: memorySize, Reclaimer: b.host}, s)
	if err != nil || restored.State() != s {
		t.Errorf("restored %+v, %v", restored.State(), err)
	}
	s.TargetPages = memorySize/pageSize + 256
	if _, err := Restore(Options{MemoryBytes: memorySize, Reclaimer: b.host}, s); !errors.Is(err, virtio.ErrState) {
		t.Errorf("bad target: %v", err)
	}
	b.dev.Reset()
	if b.dev.Actual() != 0 || b.dev.Target() != 16 {
		t.Error("after reset")
	}
}

func TestBrokenDriver(t *testing.T) {
	for name, breakIt := range map[string]func(b *bench) int{
		"odd length": func(b *bench) int {
			b.drivers[inflate].Add(b.drivers[inflate].Readable([]byte{1, 2, 3}))
			return inflate
		},
		"too many pages": func(b *bench) int {
			d := b.drivers[deflate]
			d.Add(d.Readable(make([]byte, 4*maxPages+4)))
			return deflate
		},
		"wild index": func(b *bench) int { b.drivers[report].SetAvailIndex(5000); return report },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, features)
			b.kick(breakIt(b))
			if err := <-b.irq.failed; !errors.Is(err, queue.ErrGuest) {
				t.Errorf("error %v", err)
			}
			b.dev.Pause()
			b.dev.Resume()
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	b := newBench(t, features)
	b.dev.Pause()
	b.drivers[inflate].Add(b.numbers(inflate, 5000))
	b.kick(inflate)
	time.Sleep(5 * time.Millisecond)
	if len(b.host.taken()) != 0 {
		t.Error("worked while paused")
	}
	b.dev.Resume()
	eventually(t, "the answer", func() bool { _, _, ok := b.drivers[inflate].Used(); return ok })
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(Options{MemoryBytes: 1 << 30}); err == nil {
		t.Error("no reclaimer")
	}
}
