package balloon

import (
	"encoding/binary"
	"errors"
	"testing"

	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

// checker is a Reclaimer that knows what it may be asked.
type checker struct {
	t    *testing.T
	size uint64
	last uint64 // end of the last run of this request
}

func (c *checker) Reclaim(gpa, n uint64) (zeros bool, err error) {
	if n == 0 || gpa%pageSize != 0 || n%pageSize != 0 || gpa > c.size || n > c.size-gpa {
		c.t.Fatalf("reclaim %d bytes at %#x", n, gpa)
	}
	if c.last > 0 && gpa <= c.last {
		c.t.Fatalf("run at %#x is not behind the last, which ends at %#x", gpa, c.last)
	}
	c.last = gpa + n
	return true, nil
}

const fuzzMemory = 1 << 20

// FuzzInflate: whatever page numbers come, only RAM is given back, in runs
// that do not touch.
func FuzzInflate(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 255, 0, 0, 0, 0, 1, 0, 0})
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, numbers []byte) {
		d := queuetest.New(t, queuetest.Memory(t, fuzzMemory), 0x1000, 1<<19, 16)
		var m Metrics
		h := inflater{
			ring:      ring{queue: d.Queue()},
			reclaimer: reclaimer{host: &checker{t: t, size: fuzzMemory}, memory: d.Mem, metrics: &m},
		}
		h.interrupt = &interrupts{}
		d.Add(d.Readable(numbers[:min(len(numbers), 1<<17)]))
		worked, err := h.Serve()
		if err != nil && !errors.Is(err, queue.ErrGuest) || err == nil && !worked {
			t.Fatalf("worked %v, error %v", worked, err)
		}
		if err == nil && m.Inflated.Load()+m.Invalid.Load() != uint64(len(numbers)/4) {
			t.Fatalf("counters %+v of %d pages", m.Counters(), len(numbers)/4)
		}
	})
}

// FuzzReport lets the fuzzer write the descriptors of a report.
func FuzzReport(f *testing.F) {
	f.Add(queuetest.Descriptor(0x10000, 0x8000, queuetest.Write, 0))
	f.Add(append(queuetest.Descriptor(0xfffff, 1, queuetest.Write|queuetest.Next, 1), queuetest.Descriptor(1, 0xffff, queuetest.Write, 0)...))
	f.Fuzz(func(t *testing.T, desc []byte) {
		d := queuetest.New(t, queuetest.Memory(t, fuzzMemory), 0x1000, 1<<19, 16)
		if err := d.Mem.WriteAt(desc[:min(len(desc), 256)], d.Cfg.Desc); err != nil {
			t.Fatal(err)
		}
		d.Offer(0)
		var m Metrics
		h := reporter{
			ring:      ring{queue: d.Queue()},
			reclaimer: reclaimer{host: &checker{t: t, size: fuzzMemory}, memory: d.Mem, metrics: &m},
		}
		h.interrupt = &interrupts{}
		if worked, err := h.Serve(); err != nil && !errors.Is(err, queue.ErrGuest) || err == nil && !worked {
			t.Fatalf("worked %v, error %v", worked, err)
		}
		if m.ReportedBytes.Load() > fuzzMemory {
			t.Fatalf("%d bytes reported", m.ReportedBytes.Load())
		}
	})
}

// FuzzStats: any buffer gives statistics, of known tags only.
func FuzzStats(f *testing.F) {
	f.Add(statsBuffer(uint64(FreeMemory), 1, 77, 2, uint64(FreeMemory), 3))
	f.Add([]byte{1, 0, 5})
	f.Fuzz(func(t *testing.T, p []byte) {
		s := parseStats(p)
		for tag := range Tag(100) {
			v, ok := s.Value(tag)
			if ok && tag >= Tags {
				t.Fatalf("tag %d", tag)
			}
			want, found := uint64(0), false
			for q := p; len(q) >= statSize; q = q[statSize:] {
				if Tag(binary.LittleEndian.Uint16(q)) == tag && tag < Tags {
					want, found = binary.LittleEndian.Uint64(q[2:]), true
				}
			}
			if ok != found || v != want {
				t.Fatalf("tag %d: %d, %v; want %d, %v", tag, v, ok, want, found)
			}
		}
	})
}
