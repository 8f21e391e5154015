package net

import (
	"bytes"
	"errors"
	"testing"

	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

func TestSend(t *testing.T) {
	payload := frame(1514)
	for name, add := range map[string]func(d *queuetest.Driver, p []byte){
		"one buffer": func(d *queuetest.Driver, p []byte) { d.Add(d.Readable(p)) },
		"header apart": func(d *queuetest.Driver, p []byte) {
			d.Add(d.Readable(p[:headerSize]), d.Readable(p[headerSize:]))
		},
		"header in pieces": func(d *queuetest.Driver, p []byte) {
			d.Add(d.Readable(p[:5]), d.Readable(nil), d.Readable(p[5:11]), d.Readable(p[11:100]), d.Readable(p[100:]))
		},
		"indirect": func(d *queuetest.Driver, p []byte) {
			d.AddIndirect(d.Readable(p[:headerSize]), d.Readable(p[headerSize:700]), d.Readable(p[700:]))
		},
		"with a writable buffer": func(d *queuetest.Driver, p []byte) { d.Add(d.Readable(p), d.Writable(64)) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.start()
			add(b.tx, append(header(1, 0, 0, 0, 34, 16, 9), payload...))
			b.kick(sendQueue)
			got := b.take()
			if want := append(header(1, 0, 0, 0, 34, 16, 0), payload...); !bytes.Equal(got, want) {
				t.Fatalf("got %d bytes, header %x", len(got), got[:min(len(got), headerSize)])
			}
			if _, n := used(t, b.tx); n != 0 {
				t.Errorf("%d bytes written into a send buffer", n)
			}
			eventually(t, "an interrupt", func() bool { return b.irq.used.Load() == 1 })
			if c := b.dev.Metrics().Counters(); c.SendFrames != 1 || c.SendBytes != 1514 {
				t.Errorf("counters %+v", c)
			}
		})
	}
}

func TestSendDrops(t *testing.T) {
	big := frame(maxFrame + 1)
	for _, c := range []struct {
		name string
		p    []byte
		want Counters
	}{
		{"empty", nil, Counters{SendRunts: 1}},
		{"half a header", plain[:6], Counters{SendRunts: 1}},
		{"header alone", plain, Counters{SendRunts: 1}},
		{"one byte short of Ethernet", append(plain[:12:12], frame(13)...), Counters{SendRunts: 1}},
		{"too long", append(plain[:12:12], big...), Counters{SendOversize: 1}},
		{"bad header", append(header(1, 0, 0, 0, 5000, 0, 0), frame(60)...), Counters{SendMalformed: 1}},
		{"shortest", append(plain[:12:12], frame(14)...), Counters{SendFrames: 1, SendBytes: 14}},
		{"longest", append(plain[:12:12], big[:maxFrame]...), Counters{SendFrames: 1, SendBytes: maxFrame}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.start()
			b.tx.Add(b.tx.Readable(c.p))
			b.kick(sendQueue)
			used(t, b.tx) // dropped or not, the buffer comes back
			got := b.dev.Metrics().Counters()
			got.ReceiveStarved = 0 // there are no receive buffers
			if got != c.want {
				t.Errorf("counters %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestSendIntoFullTap(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	p := b.tx.Readable(append(plain[:12:12], frame(60000)...))
	for range 200 {
		b.tx.Add(p)
	}
	b.kick(sendQueue)
	for range 200 {
		used(t, b.tx)
	}
	if c := b.dev.Metrics().Counters(); c.SendFull == 0 || c.SendFull+c.SendFrames != 200 {
		t.Errorf("counters %+v", c)
	}
}

func TestSendBatchInterruptsOnce(t *testing.T) {
	b := newBench(t, nil)
	p := b.tx.Readable(append(plain[:12:12], frame(60)...))
	for range batchFrames {
		b.tx.Add(p)
	}
	b.start()
	for range batchFrames {
		used(t, b.tx)
	}
	b.dev.Pause()
	if n := b.irq.used.Load(); n != 1 {
		t.Errorf("%d interrupts", n)
	}
}

func TestReceive(t *testing.T) {
	for _, c := range []struct {
		name  string
		posts int
		size  uint32
	}{
		{"small buffers", 200, 600},
		{"usual buffers", 100, 1536},
		{"page buffers", 60, 4096},
		{"big buffers", 12, 65562},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, nil)
			b.start()
			posts := b.post(c.posts, c.size)
			for _, n := range []int{60, 1514, 600 - headerSize, 601 - headerSize, 9000, 14, 65550, 1514} {
				payload := frame(n)
				b.put(append(header(1, 1, 54, 1448, 34, 16, 0), payload...))
				var got []byte
				got, posts = b.collect(posts)
				wantFrame(t, got, payload)
				if !bytes.Equal(got[:offNumBuffers], header(1, 1, 54, 1448, 34, 16, 0)[:offNumBuffers]) {
					t.Errorf("header %x", got[:headerSize])
				}
			}
			b.dev.Pause()
			settled(t, b.act.Queues[receiveQueue].Queue)
			if c := b.dev.Metrics().Counters(); c.ReceiveFrames != 8 || b.irq.used.Load() == 0 {
				t.Errorf("counters %+v", c)
			}
		})
	}
}

// TestReceivePieces gives buffers whose first pieces are smaller than the
// header.
func TestReceivePieces(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	parts := []queuetest.Buffer{b.rx.Writable(3), b.rx.Writable(8), b.rx.Writable(0), b.rx.Writable(200), b.rx.Writable(2000)}
	b.rx.AddIndirect(parts...)
	b.kick(receiveQueue)
	payload := frame(1000)
	b.put(append(plain[:12:12], payload...))
	if _, n := used(t, b.rx); n != headerSize+1000 {
		t.Fatalf("%d bytes", n)
	}
	var got []byte
	for _, p := range parts {
		got = append(got, b.rx.Bytes(p)...)
	}
	wantFrame(t, got[:headerSize+1000], payload)
	if got[offNumBuffers] != 1 || got[offNumBuffers+1] != 0 {
		t.Errorf("header %x", got[:headerSize])
	}
}

func TestReceiveWaitsForBuffers(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	first, second := frame(9000), frame(300)
	b.put(append(plain[:12:12], first...))
	b.put(append(plain[:12:12], second...))
	var posts []receivePost
	for i := range 7 { // the first frame needs five
		eventually(t, "a wish for a kick", func() bool { return b.rx.AvailEvent() == uint16(i) })
		posts = append(posts, b.post(1, 2000)...)
	}
	got, posts := b.collect(posts)
	wantFrame(t, got, first)
	got, _ = b.collect(posts)
	wantFrame(t, got, second)
	if c := b.dev.Metrics().Counters(); c.ReceiveSplit != 1 || c.ReceiveStarved < 5 {
		t.Errorf("counters %+v", c)
	}
}

func TestReceiveWithoutMerging(t *testing.T) {
	b := newBench(t, func(f uint64) uint64 { return f &^ FeatureMergeRX })
	b.start()
	posts := b.post(2, 2000)
	b.put(append(plain[:12:12], frame(3000)...)) // does not fit: dropped
	b.put(append(plain[:12:12], frame(1000)...))
	got, posts := b.collect(posts)
	wantFrame(t, got, frame(1000))
	b.put(append(plain[:12:12], frame(2000-headerSize)...))
	got, _ = b.collect(posts)
	wantFrame(t, got, frame(2000-headerSize))
	if c := b.dev.Metrics().Counters(); c.ReceiveOversize != 1 || c.ReceiveFrames != 2 {
		t.Errorf("counters %+v", c)
	}
}

func TestReceiveMoreThanTheRingHolds(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	posts := b.post(queueSize, 100)
	b.put(append(plain[:12:12], frame(60000)...)) // 25 600 bytes are all there is
	b.put(append(plain[:12:12], frame(5000)...))
	got, _ := b.collect(posts)
	wantFrame(t, got, frame(5000))
	if c := b.dev.Metrics().Counters(); c.ReceiveOversize != 1 {
		t.Errorf("counters %+v", c)
	}
}

func TestReceiveWithoutChecksumFeature(t *testing.T) {
	w := newWire(t)
	o := testOptions
	o.Offload = false
	dev, err := New(w.near, o)
	if err != nil {
		t.Fatal(err)
	}
	mem := queuetest.Memory(t, 1<<20)
	rx := queuetest.New(t, mem, 0x1000, 1<<19, 16)
	tx := queuetest.New(t, mem, 1<<19, 1<<18, 16)
	b := &bench{wire: w, t: t, dev: dev, rx: rx, tx: tx, irq: newInterrupts()}
	b.act = virtio.Activation{Memory: mem, Features: dev.Features(), Interrupt: b.irq, Queues: []virtio.Queue{
		{Queue: rx.Queue(), Kick: newKick(t)}, {Queue: tx.Queue(), Kick: newKick(t)}}}
	b.start()
	posts := b.post(4, 2000)
	b.put(append(header(2, 0, 0, 0, 0, 0, 0), frame(500)...)) // VIRTIO_NET_HDR_F_DATA_VALID
	got, _ := b.collect(posts)
	wantFrame(t, got, frame(500))
	if !bytes.Equal(got[:headerSize], header(0, 0, 0, 0, 0, 0, 1)) {
		t.Errorf("header %x", got[:headerSize])
	}
}

func TestPauseGivesEverythingBack(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	posts := b.post(2, 2000)
	b.put(append(plain[:12:12], frame(9000)...)) // half delivered
	eventually(t, "a wish for a kick", func() bool { return b.rx.AvailEvent() == 2 })
	b.dev.Pause()
	for i := range b.act.Queues {
		settled(t, b.act.Queues[i].Queue)
	}
	if c := b.dev.Metrics().Counters(); c.ReceiveDropped != 1 || c.ReceiveFrames != 0 {
		t.Errorf("counters %+v", c)
	}
	b.put(append(plain[:12:12], frame(700)...))
	b.dev.Resume()
	got, _ := b.collect(posts)
	wantFrame(t, got, frame(700))
}

func TestPauseAndStopWhileBusy(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	p := b.tx.Readable(append(plain[:12:12], frame(60)...))
	for range 100 {
		b.tx.Add(p)
		b.kick(sendQueue)
		used(t, b.tx)
		b.dev.Pause()
		b.dev.Pause() // twice does no harm
		b.dev.Resume()
		b.dev.Resume()
		if b.take() == nil {
			t.Fatal("frame lost")
		}
	}
	b.dev.Pause()
	b.dev.Reset() // out of a pause
	b.dev.Pause() // inactive: nothing
	b.dev.Resume()
	b.dev.Reset()
}

func TestLostTap(t *testing.T) {
	b := newBench(t, nil)
	b.start()
	b.post(4, 2000)
	if b.dev.Config()[configStatus] != statusLinkUp {
		t.Error("link is not up")
	}
	b.hangUp()
	eventually(t, "a configuration change", func() bool { return b.irq.config.Load() == 1 })
	if b.dev.Config()[configStatus] != 0 {
		t.Error("link is still up")
	}
	b.dev.Pause()
	settled(t, b.act.Queues[receiveQueue].Queue)
	b.dev.Resume()
	b.tx.Add(b.tx.Readable(append(plain[:12:12], frame(60)...)))
	b.kick(sendQueue)
	used(t, b.tx) // dropped, not stuck
	if c := b.dev.Metrics().Counters(); c.SendRefused != 1 {
		t.Errorf("counters %+v", c)
	}
}

func TestBrokenDriver(t *testing.T) {
	for name, breakIt := range map[string]func(b *bench){
		"receive buffer without room for a header": func(b *bench) { b.rx.Add(b.rx.Writable(headerSize - 1)); b.kick(receiveQueue) },
		"receive buffer that is readable":          func(b *bench) { b.rx.Add(b.rx.Readable(make([]byte, 2000))); b.kick(receiveQueue) },
		"wild receive index":                       func(b *bench) { b.rx.SetAvailIndex(9999); b.kick(receiveQueue) },
		"wild send index":                          func(b *bench) { b.tx.SetAvailIndex(9999); b.kick(sendQueue) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.start()
			breakIt(b)
			if err := <-b.irq.failed; !errors.Is(err, queue.ErrGuest) {
				t.Errorf("error %v", err)
			}
			b.dev.Pause() // ends although a worker has ended
			b.dev.Resume()
		})
	}
}

func TestActivateRefuses(t *testing.T) {
	for name, change := range map[string]func(b *bench){
		"offloads not taken": func(b *bench) { b.act.Features &^= FeatureGuestTSO6 },
		"no receive queue":   func(b *bench) { b.act.Queues[receiveQueue].Queue = nil },
		"no send queue":      func(b *bench) { b.act.Queues[sendQueue].Queue = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			change(b)
			if err := b.dev.Activate(b.act); !errors.Is(err, queue.ErrGuest) {
				t.Errorf("error %v", err)
			}
			b.dev.Reset()
		})
	}
}

func TestOptionsAndConfig(t *testing.T) {
	w := newWire(t)
	for name, o := range map[string]Options{
		"no address": {},
		"multicast":  {MAC: [6]byte{1, 0, 0x5e, 0, 0, 1}},
		"small MTU":  {MAC: testOptions.MAC, MTU: 67},
		"large MTU":  {MAC: testOptions.MAC, MTU: 65522},
	} {
		if _, err := New(w.near, o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	d, err := New(w.near, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte{2, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0xdc, 0x05}
	d.WriteConfig(0, []byte{9, 9, 9, 9, 9, 9, 9, 9})
	if got := d.Config(); !bytes.Equal(got, want) {
		t.Errorf("config %x, want %x", got, want)
	}
}
