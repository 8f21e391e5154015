package block

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/virtio"
	"thaw/virtio/block/disk"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testSize = 1 << 20

// both runs a test on a disk of one file and on one with an empty top.
func both(t *testing.T, test func(t *testing.T, r *rig)) {
	for place, dir := range places(t) {
		t.Run(place+"/single", func(t *testing.T) {
			test(t, newRigOn(t, diskFile(t, dir, testSize)))
		})
		t.Run(place+"/layered", func(t *testing.T) {
			test(t, newRigOn(t, diskFile(t, dir, testSize), diskFile(t, dir, 0)))
		})
	}
}

func TestReadWriteFlush(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		want := pattern(testSize)
		if got, status := r.read(0, 8192); status != statusOK || !bytes.Equal(got, want[:8192]) {
			t.Fatalf("first read: status %d", status)
		}
		block := bytes.Repeat([]byte{0x5a}, 3*512)
		if status := r.write(9, block); status != statusOK {
			t.Fatalf("write: status %d", status)
		}
		if status := r.flush(); status != statusOK {
			t.Fatalf("flush: status %d", status)
		}
		copy(want[9*512:], block)
		if got, status := r.read(0, testSize/2); status != statusOK || !bytes.Equal(got, want[:testSize/2]) {
			t.Fatalf("read after write: status %d", status)
		}
		m := r.dev.Metrics()
		if m.Reads.Load() != 2 || m.Writes.Load() != 1 || m.Flushes.Load() != 1 ||
			m.ReadBytes.Load() != 8192+testSize/2 || m.WrittenBytes.Load() != 3*512 || m.HostErrors.Load() != 0 {
			t.Errorf("counters are %v", r.dev.State().Counters)
		}
	})
}

func TestDiscardAndWriteZeroes(t *testing.T) {
	for _, kind := range []uint32{typeDiscard, typeWriteZeroes} {
		both(t, func(t *testing.T, r *rig) {
			want := pattern(testSize)
			ranges := append(encodeRange(16, 8, 0), encodeRange(101, 51, 0)...)
			if status := r.ask(r.header(kind, 0), r.Readable(ranges), r.statusBuffer()); status != statusOK {
				t.Fatalf("status %d", status)
			}
			clear(want[16*512 : 24*512])
			clear(want[101*512 : 152*512])
			if got, _ := r.read(0, testSize/2); !bytes.Equal(got, want[:testSize/2]) {
				t.Fatal("other bytes than the ranges changed, or those did not")
			}
		})
	}
}

func encodeRange(sector uint64, sectors, flags uint32) []byte {
	p := make([]byte, rangeLen)
	binary.LittleEndian.PutUint64(p, sector)
	binary.LittleEndian.PutUint32(p[8:], sectors)
	binary.LittleEndian.PutUint32(p[12:], flags)
	return p
}

func TestGetID(t *testing.T) {
	r := newRig(t, newDeviceOn(t, Options{ID: "vda", Layers: []*os.File{diskFile(t, t.TempDir(), 512)}}))
	id := r.Writable(20)
	if status := r.ask(r.header(typeGetID, 0), id, r.statusBuffer()); status != statusOK {
		t.Fatalf("status %d", status)
	}
	if got := string(r.Bytes(id)); got != "vda"+strings.Repeat("\x00", 17) {
		t.Fatalf("id %q", got)
	}
}

// A request means the same however it is cut into buffers.
func TestOddFraming(t *testing.T) {
	both(t, func(t *testing.T, r *rig) {
		data := pattern(testSize)[512 : 512+1024]
		header := encodeHeader(typeOut, 3)
		status := r.ask(r.Readable(header[:1]), r.Readable(header[1:9]), r.Readable(slices.Concat(header[9:], data[:700])),
			r.Readable(data[700:]), r.statusBuffer())
		if status != statusOK {
			t.Fatalf("write: status %d", status)
		}
		// The status shares its buffer with the data's end.
		in := []queuetest.Buffer{r.Writable(3), r.Writable(1000), r.Writable(1022)}
		in[2].Len = 1024 - 1003 + 1
		if status := r.ask(append([]queuetest.Buffer{r.Readable(encodeHeader(typeIn, 3))}, in...)...); status != statusOK {
			t.Fatalf("read: status %d", status)
		}
		got := slices.Concat(r.Bytes(in[0]), r.Bytes(in[1]), r.Bytes(in[2]))
		if !bytes.Equal(got[:1024], data) {
			t.Fatal("read back other bytes")
		}
		// Through an indirect table.
		data2, st := r.Writable(1024), r.statusBuffer()
		r.AddIndirect(r.header(typeIn, 3), data2, st)
		r.kick.Signal()
		r.wait()
		if r.Bytes(st)[0] != statusOK || !bytes.Equal(r.Bytes(data2), data) {
			t.Fatal("indirect read differs")
		}
	})
}

func TestRefusedRequests(t *testing.T) {
	const sectors = testSize / 512
	both(t, func(t *testing.T, r *rig) {
		data := func(n uint32) queuetest.Buffer { return r.Writable(n) }
		out := func(n int) queuetest.Buffer { return r.Readable(bytes.Repeat([]byte{0xee}, n)) }
		for _, c := range []struct {
			name    string
			want    byte
			buffers []queuetest.Buffer
		}{
			{"read beyond the end", statusIOError, []queuetest.Buffer{r.header(typeIn, sectors), data(512)}},
			{"read across the end", statusIOError, []queuetest.Buffer{r.header(typeIn, sectors-1), data(1024)}},
			{"read at the last sector number", statusIOError, []queuetest.Buffer{r.header(typeIn, 1<<64-1), data(512)}},
			{"read at an overflowing offset", statusIOError, []queuetest.Buffer{r.header(typeIn, 1<<55), data(512)}},
			{"read of part of a sector", statusIOError, []queuetest.Buffer{r.header(typeIn, 0), data(511)}},
			{"read of nothing", statusOK, []queuetest.Buffer{r.header(typeIn, sectors)}},
			{"write across the end", statusIOError, []queuetest.Buffer{r.header(typeOut, sectors-1), out(1024)}},
			{"write of part of a sector", statusIOError, []queuetest.Buffer{r.header(typeOut, 0), out(100)}},
			{"discard beyond the end", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(encodeRange(sectors-1, 2, 0))}},
			{"discard overflows", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(encodeRange(1<<64-1, 1, 0))}},
			{"discard too long", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(encodeRange(0, 1<<32-1, 0))}},
			{"discard of nothing", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0)}},
			{"discard with half a range", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(make([]byte, 24))}},
			{"discard with too many ranges", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(make([]byte, 17*16))}},
			{"discard with unmap", statusUnsupported, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(encodeRange(0, 8, flagUnmap))}},
			{"zeroes with an unknown flag", statusUnsupported, []queuetest.Buffer{r.header(typeWriteZeroes, 0), r.Readable(encodeRange(0, 8, 2))}},
			{"good range before a bad one", statusIOError, []queuetest.Buffer{r.header(typeDiscard, 0), r.Readable(append(encodeRange(0, 8, 0), encodeRange(sectors, 1, 0)...))}},
			{"lifetime", statusUnsupported, []queuetest.Buffer{r.header(10, 0), data(8)}},
			{"secure erase", statusUnsupported, []queuetest.Buffer{r.header(14, 0)}},
			{"unknown type", statusUnsupported, []queuetest.Buffer{r.header(1<<31, 0)}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if got := r.ask(append(c.buffers, r.statusBuffer())...); got != c.want {
					t.Fatalf("status %d, want %d", got, c.want)
				}
			})
		}
		if got, _ := r.read(0, testSize/2); !bytes.Equal(got, pattern(testSize)[:testSize/2]) {
			t.Fatal("a refused request changed the disk")
		}
	})
}

func TestReadOnly(t *testing.T) {
	f := diskFile(t, t.TempDir(), testSize)
	r := newRig(t, newDeviceOn(t, Options{ID: "vda", Layers: []*os.File{f}, ReadOnly: true}))
	if r.dev.Features()&featureReadOnly == 0 || r.dev.Features()&(featureFlush|featureDiscard) != 0 {
		t.Fatalf("features %#x", r.dev.Features())
	}
	if status := r.write(0, make([]byte, 512)); status != statusIOError {
		t.Errorf("write: status %d", status)
	}
	for _, kind := range []uint32{typeDiscard, typeWriteZeroes} {
		if status := r.ask(r.header(kind, 0), r.Readable(encodeRange(0, 8, 0)), r.statusBuffer()); status != statusIOError {
			t.Errorf("type %d: status %d", kind, status)
		}
	}
	if status := r.flush(); status != statusOK {
		t.Errorf("flush: status %d", status)
	}
	if !bytes.Equal(content(t, f), pattern(testSize)) {
		t.Fatal("the file changed")
	}
}

// A chain without room for a header or a status cannot be answered.
func TestBrokenChains(t *testing.T) {
	for name, buffers := range map[string]func(r *rig) []queuetest.Buffer{
		"no status": func(r *rig) []queuetest.Buffer { return []queuetest.Buffer{r.header(typeFlush, 0)} },
		"short header": func(r *rig) []queuetest.Buffer {
			return []queuetest.Buffer{r.Readable(make([]byte, 15)), r.Writable(1)}
		},
		"empty status": func(r *rig) []queuetest.Buffer {
			b := r.Writable(1)
			b.Len = 0
			return []queuetest.Buffer{r.header(typeFlush, 0), b}
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), 512)}}))
			r.send(buffers(r)...)
			select {
			case err := <-r.irq.broken:
				if !errors.Is(err, queue.ErrGuest) {
					t.Fatalf("got %v, want %v", err, queue.ErrGuest)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the device goes on")
			}
		})
	}
}

func TestHostErrors(t *testing.T) {
	f := diskFile(t, t.TempDir(), testSize)
	r := newRig(t, newDeviceOn(t, Options{Layers: []*os.File{f}}))
	if err := f.Truncate(4096); err != nil {
		t.Fatal(err)
	}
	if _, status := r.read(64, 4096); status != statusIOError {
		t.Fatalf("read beyond the cut: status %d", status)
	}
	if r.dev.Metrics().HostErrors.Load() != 1 {
		t.Fatal("the failure is not counted")
	}
}

func TestNoSpaceIsCounted(t *testing.T) {
	var m Metrics
	m.hostError(unix.EIO)
	m.hostError(errors.Join(unix.ENOSPC))
	m.hostError(unix.EDQUOT)
	if m.HostErrors.Load() != 3 || m.NoSpace.Load() != 2 {
		t.Fatalf("%d errors, %d for lack of space", m.HostErrors.Load(), m.NoSpace.Load())
	}
}

// What the writable part of a request covered is marked dirty, status included.
func TestDirtyTracking(t *testing.T) {
	r := newRig(t, newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), testSize)}}))
	bitmap := guestmem.NewBitmap(r.Mem.Size())
	r.Mem.TrackDirty(bitmap)
	data := queuetest.Buffer{GPA: 32 << 20, Len: 8192, Write: true}
	status := queuetest.Buffer{GPA: 48 << 20, Len: 1, Write: true}
	r.ask(r.header(typeIn, 0), data, status)
	r.dev.Pause()
	dirty := map[uint64]bool{}
	bitmap.Drain(func(page uint64) { dirty[page] = true })
	for _, page := range []uint64{32 << 8, 32<<8 + 1, 48 << 8, r.Cfg.Used >> 12} {
		if !dirty[page] {
			t.Errorf("page %#x is not marked", page)
		}
	}
	r.dev.Resume()
}

func TestNewRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		options Options
		want    error
	}{
		"size": {Options{Layers: []*os.File{diskFile(t, dir, 1000)}}, disk.ErrSize},
		"none": {Options{}, disk.ErrLayers},
		"id":   {Options{ID: strings.Repeat("x", 21), Layers: []*os.File{diskFile(t, dir, 512)}}, ErrID},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := New(c.options); !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	dev := newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), testSize)}})
	c := dev.Config()
	le := binary.LittleEndian
	if got := le.Uint64(c[configCapacity:]); got != testSize/512 {
		t.Errorf("capacity %d", got)
	}
	if got := le.Uint32(c[configSegMax:]); got != queueSize-2 {
		t.Errorf("seg_max %d", got)
	}
	if 1<<c[configPhysicalExponent] != blockSectors {
		t.Errorf("physical block of 2^%d sectors", c[configPhysicalExponent])
	}
	if got := le.Uint32(c[configDiscardAlign:]); got != blockSectors {
		t.Errorf("discard alignment %d", got)
	}
	dev.WriteConfig(0, []byte{1, 2, 3})
	if le.Uint64(dev.Config()) != testSize/512 {
		t.Error("the guest changed the configuration")
	}
	if dev.ID() != virtio.BlockID || !slices.Equal(dev.QueueSizes(), []uint16{queueSize}) {
		t.Error("not a block device with one queue")
	}
}

// No request costs memory once the buffers have grown.
func TestNoAllocation(t *testing.T) {
	dev := newDeviceOn(t, Options{Layers: []*os.File{diskFile(t, t.TempDir(), testSize)}})
	r := newIdleRig(t, dev)
	s := newServer(dev, virtio.Activation{Features: dev.Features(), Queues: []virtio.Queue{{Queue: r.Queue()}}, Interrupt: r.irq})
	chain := []queuetest.Buffer{r.header(typeIn, 8), r.Writable(4096), r.statusBuffer()}
	n := testing.AllocsPerRun(100, func() {
		for range 32 {
			r.Add(chain...)
		}
		if _, err := s.Serve(); err != nil {
			t.Fatal(err)
		}
	})
	if n != 0 {
		t.Fatalf("%v allocations for 32 requests", n)
	}
}
