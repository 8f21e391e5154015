package queue_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"thaw/internal/guestmem"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

const base, span = 0x1000, 1 << 20

func newDriver(t testing.TB, size uint16) *queuetest.Driver {
	return queuetest.New(t, queuetest.Memory(t, 4<<20), base, span, size)
}

func TestRequestAndAnswer(t *testing.T) {
	for _, add := range []struct {
		name string
		f    func(*queuetest.Driver, ...queuetest.Buffer) uint16
	}{{"direct", (*queuetest.Driver).Add}, {"indirect", (*queuetest.Driver).AddIndirect}} {
		t.Run(add.name, func(t *testing.T) {
			d := newDriver(t, 8)
			q := d.Queue()
			var c queue.Chain
			// More rounds than entries: indices wrap.
			for round := range 70000 / 8 {
				if round > 20 && round < 65530/8 {
					continue
				}
				in, out := d.Readable([]byte("ping")), d.Writable(3)
				head := add.f(d, in, out, d.Writable(3))
				if ok, err := q.Pop(&c); !ok || err != nil {
					t.Fatalf("round %d: Pop: %v, %v", round, ok, err)
				}
				r, w := c.Reader(), c.Writer()
				got, err := io.ReadAll(&r)
				if err != nil || string(got) != "ping" || c.ReadLen() != 4 || c.WriteLen() != 6 {
					t.Fatalf("read %q, %v; lengths %d, %d", got, err, c.ReadLen(), c.WriteLen())
				}
				if n, err := w.Write([]byte("pong!??")); n != 6 || err != io.ErrShortWrite {
					t.Fatalf("write: %d, %v", n, err)
				}
				q.Push(&c, 5)
				if d.UsedIndex() == uint16(round)+1 && round <= 20 {
					t.Fatal("used before it was published")
				}
				q.Publish()
				if h, n, ok := d.Used(); !ok || h != head || n != 5 {
					t.Fatalf("used: %d, %d, %v; want head %d", h, n, ok, head)
				}
				if !bytes.Equal(d.Bytes(out), []byte("pon")) {
					t.Fatalf("answer %q", d.Bytes(out))
				}
			}
			if ok, err := q.Pop(&c); ok || err != nil {
				t.Errorf("Pop of an empty ring: %v, %v", ok, err)
			}
		})
	}
}

func TestUnpop(t *testing.T) {
	d := newDriver(t, 8)
	q := d.Queue()
	first, second := d.Add(d.Writable(1)), d.Add(d.Writable(1))
	var a, b queue.Chain
	for _, c := range []*queue.Chain{&a, &b} {
		if ok, err := q.Pop(c); !ok {
			t.Fatal(err)
		}
	}
	q.Push(&a, 0)
	q.Unpop(1)
	if ok, err := q.Pop(&b); !ok {
		t.Fatal(err)
	}
	q.Push(&b, 0)
	q.Publish()
	for _, want := range []uint16{first, second} {
		if head, _, ok := d.Used(); !ok || head != want {
			t.Errorf("used %d, %v; want %d", head, ok, want)
		}
	}
}

func TestCursor(t *testing.T) {
	d := newDriver(t, 8)
	q := d.Queue()
	d.Add(d.Readable([]byte("abc")), d.Readable(nil), d.Readable([]byte("defgh")))
	var c queue.Chain
	if ok, err := q.Pop(&c); !ok {
		t.Fatal(err)
	}
	r := c.Reader()
	head := r.Split(4)
	if b, _ := io.ReadAll(&head); string(b) != "abcd" {
		t.Errorf("head %q", b)
	}
	r.Skip(1)
	s := r.Slices(nil, 100)
	if len(s) != 1 || string(s[0]) != "fgh" || r.Len() != 0 {
		t.Errorf("slices %q, %d left", s, r.Len())
	}
	if n, err := r.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		t.Errorf("read at the end: %d, %v", n, err)
	}
}

func TestInterruptSuppression(t *testing.T) {
	var c queue.Chain
	complete := func(d *queuetest.Driver, q *queue.Queue) bool {
		d.Add(d.Writable(1))
		if ok, err := q.Pop(&c); !ok {
			t.Fatal(err)
		}
		q.Push(&c, 1)
		return q.Publish()
	}
	t.Run("event index", func(t *testing.T) {
		d := newDriver(t, 8)
		q := d.Queue()
		d.SetUsedEvent(1) // only once the second is used
		for i, want := range []bool{false, true, false, false} {
			if got := complete(d, q); got != want {
				t.Errorf("completion %d: interrupt %v, want %v", i, got, want)
			}
		}
		if q.Publish() {
			t.Error("interrupt with nothing new")
		}
	})
	t.Run("flag", func(t *testing.T) {
		d := newDriver(t, 8)
		d.Cfg.EventIndex = false
		q := d.Queue()
		if !complete(d, q) {
			t.Error("no interrupt")
		}
		if err := d.Mem.WriteAt([]byte{1, 0}, d.Cfg.Avail); err != nil {
			t.Fatal(err)
		}
		if complete(d, q) {
			t.Error("interrupt although the driver wants none")
		}
	})
}

func TestNotification(t *testing.T) {
	d := newDriver(t, 8)
	q := d.Queue()
	if q.EnableNotify() {
		t.Error("available in an empty ring")
	}
	if d.AvailEvent() != 0 {
		t.Errorf("avail_event %d", d.AvailEvent())
	}
	d.Add(d.Readable([]byte("x")))
	if !q.EnableNotify() || !q.Available() {
		t.Error("chain added before the driver could see the event was missed")
	}
}

func TestBadRings(t *testing.T) {
	mem := queuetest.Memory(t, 1<<20)
	good := queue.Config{Size: 8, Desc: 0x1000, Avail: 0x2000, Used: 0x3000}
	if _, err := queue.New(mem, good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*queue.Config){
		"size zero":            func(c *queue.Config) { c.Size = 0 },
		"size not a power":     func(c *queue.Config) { c.Size = 12 },
		"size too big":         func(c *queue.Config) { c.Size = 2048 },
		"desc unaligned":       func(c *queue.Config) { c.Desc++ },
		"avail unaligned":      func(c *queue.Config) { c.Avail++ },
		"used unaligned":       func(c *queue.Config) { c.Used += 2 },
		"desc outside":         func(c *queue.Config) { c.Desc = 1 << 20 },
		"avail at the edge":    func(c *queue.Config) { c.Avail = 1<<20 - 8 },
		"used wraps":           func(c *queue.Config) { c.Used = ^uint64(3) },
		"used overlaps desc":   func(c *queue.Config) { c.Used = c.Desc + 64 },
		"avail overlaps used":  func(c *queue.Config) { c.Avail = c.Used + 8 },
		"avail overlaps desc":  func(c *queue.Config) { c.Avail = c.Desc },
		"ring in the PCI hole": func(c *queue.Config) { c.Used = guestmem.HoleStart },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			change(&cfg)
			if _, err := queue.New(mem, cfg); !errors.Is(err, queue.ErrGuest) {
				t.Errorf("err %v, want ErrGuest", err)
			}
		})
	}
}

func TestBadChains(t *testing.T) {
	for name, build := range map[string]func(d *queuetest.Driver){
		"wild available index": func(d *queuetest.Driver) { d.SetAvailIndex(1000) },
		"head out of range":    func(d *queuetest.Driver) { d.Offer(8) },
		"next out of range": func(d *queuetest.Driver) {
			d.SetDescriptor(0, base, 1, queuetest.Next, 77)
			d.Offer(0)
		},
		"loop": func(d *queuetest.Driver) {
			d.SetDescriptor(0, base, 1, queuetest.Next, 1)
			d.SetDescriptor(1, base, 1, queuetest.Next, 0)
			d.Offer(0)
		},
		"buffer outside": func(d *queuetest.Driver) {
			d.SetDescriptor(0, 1<<40, 1, 0, 0)
			d.Offer(0)
		},
		"buffer wraps": func(d *queuetest.Driver) {
			d.SetDescriptor(0, ^uint64(0), 16, 0, 0)
			d.Offer(0)
		},
		"readable behind writable": func(d *queuetest.Driver) { d.Add(d.Writable(1), d.Readable([]byte("x"))) },
		"more than 4 GiB": func(d *queuetest.Driver) {
			big := queuetest.Buffer{GPA: 0, Len: 4 << 20}
			table := make([]queuetest.Buffer, 8)
			for i := range table {
				table[i] = big
			}
			table[7].Len = 1<<32 - 1
			d.AddIndirect(table...)
		},
		"indirect in indirect": func(d *queuetest.Driver) {
			table := d.Readable(queuetest.Descriptor(base, 16, queuetest.Indirect, 0))
			d.SetDescriptor(0, table.GPA, 16, queuetest.Indirect, 0)
			d.Offer(0)
		},
		"indirect with next": func(d *queuetest.Driver) {
			d.SetDescriptor(0, base, 16, queuetest.Indirect|queuetest.Next, 1)
			d.Offer(0)
		},
		"indirect table of odd length": func(d *queuetest.Driver) {
			d.SetDescriptor(0, base, 24, queuetest.Indirect, 0)
			d.Offer(0)
		},
		"indirect table longer than the queue": func(d *queuetest.Driver) {
			d.SetDescriptor(0, base, 9*16, queuetest.Indirect, 0)
			d.Offer(0)
		},
		"indirect table empty": func(d *queuetest.Driver) {
			d.SetDescriptor(0, base, 0, queuetest.Indirect, 0)
			d.Offer(0)
		},
		"indirect table loops": func(d *queuetest.Driver) {
			table := d.Readable(queuetest.Descriptor(base, 1, queuetest.Next, 0))
			d.SetDescriptor(0, table.GPA, 16, queuetest.Indirect, 0)
			d.Offer(0)
		},
		"indirect not negotiated": func(d *queuetest.Driver) {
			d.Cfg.Indirect = false
			d.AddIndirect(d.Readable([]byte("x")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 8)
			build(d)
			var c queue.Chain
			if ok, err := d.Queue().Pop(&c); ok || !errors.Is(err, queue.ErrGuest) {
				t.Errorf("Pop: %v, %v; want ErrGuest", ok, err)
			}
		})
	}
}

func TestDirtyMarks(t *testing.T) {
	d := newDriver(t, 8)
	q := d.Queue()
	out := d.Writable(8192)
	d.Add(out)
	b := guestmem.NewBitmap(d.Mem.Size())
	d.Mem.TrackDirty(b)
	var c queue.Chain
	if ok, err := q.Pop(&c); !ok {
		t.Fatal(err)
	}
	q.Push(&c, 4097)
	q.Publish()
	marked := map[uint64]bool{}
	b.Drain(func(p uint64) { marked[p] = true })
	for _, gpa := range []uint64{out.GPA, out.GPA + 4096, d.Cfg.Used} {
		if !marked[gpa/guestmem.PageSize] {
			t.Errorf("page of %#x is not marked: %v", gpa, marked)
		}
	}
	if len(marked) != 3 {
		t.Errorf("marked %v, want three pages", marked)
	}
}

func TestStateRoundTrip(t *testing.T) {
	d := newDriver(t, 8)
	q := d.Queue()
	var c queue.Chain
	d.Add(d.Writable(1))
	if ok, err := q.Pop(&c); !ok {
		t.Fatal(err)
	}
	q.Push(&c, 1)
	q.Publish()
	s := q.State()
	q2, err := queue.Restore(d.Mem, s)
	if err != nil {
		t.Fatal(err)
	}
	if q2.State() != s {
		t.Errorf("state %+v, want %+v", q2.State(), s)
	}
	d.Add(d.Writable(1))
	if ok, err := q2.Pop(&c); !ok || err != nil {
		t.Errorf("Pop after restore: %v, %v", ok, err)
	}
	for name, change := range map[string]func(*queue.State){
		"size": func(s *queue.State) { s.Size = 3 },
		"desc": func(s *queue.State) { s.Desc = 1 << 50 },
		"next": func(s *queue.State) { s.Next += 2 },
	} {
		bad := s
		change(&bad)
		if _, err := queue.Restore(d.Mem, bad); !errors.Is(err, queue.ErrGuest) {
			t.Errorf("%s: err %v, want ErrGuest", name, err)
		}
	}
}

func BenchmarkPopPush(b *testing.B) {
	d := newDriver(b, 256)
	q := d.Queue()
	var c queue.Chain
	in, out := d.Readable(make([]byte, 16)), d.Writable(4096)
	for b.Loop() {
		d.Add(in, out)
		if ok, err := q.Pop(&c); !ok {
			b.Fatal(err)
		}
		q.Push(&c, 4096)
		q.Publish()
	}
}
