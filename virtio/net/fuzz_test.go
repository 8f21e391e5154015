package net

import (
	"encoding/binary"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

// FuzzHeader: what comes out of cleanHeader never points outside of the frame
// and never asks for what was not negotiated.
func FuzzHeader(f *testing.F) {
	f.Add(header(1, 1, 54, 1448, 34, 16, 1), uint32(9000), uint64(allSend))
	f.Add(header(1, 0x84, 74, 1428, 54, 16, 0), uint32(60), uint64(allSend))
	f.Add(header(0xff, 5, 0xffff, 0, 0xffff, 0xffff, 0xffff), uint32(14), uint64(0))
	f.Fuzz(func(t *testing.T, p []byte, frame uint32, features uint64) {
		if len(p) < headerSize {
			return
		}
		h := [headerSize]byte(p)
		if !cleanHeader(&h, frame, features) {
			return
		}
		le := binary.LittleEndian
		if h[offFlags]&^flagNeedsCSum != 0 || le.Uint16(h[offNumBuffers:]) != 0 {
			t.Fatalf("header %x", h)
		}
		if h[offFlags] != 0 {
			end := uint64(le.Uint16(h[offCSumStart:])) + uint64(le.Uint16(h[offCSumOffset:])) + 2
			if end > uint64(frame) || features&FeatureCSum == 0 {
				t.Fatalf("checksum at %d of %d, features %#x", end, frame, features)
			}
		}
		need := map[byte]uint64{0: 0, 1: FeatureHostTSO4, 4: FeatureHostTSO6,
			0x81: FeatureHostTSO4 | FeatureHostECN, 0x84: FeatureHostTSO6 | FeatureHostECN}
		bits, known := need[h[offGSOType]]
		if !known || features&bits != bits || uint32(le.Uint16(h[offHdrLen:])) > frame {
			t.Fatalf("header %x with features %#x", h, features)
		}
		if again := h; !cleanHeader(&again, frame, features) || again != h {
			t.Fatalf("cleaned twice: %x, %x", h, again)
		}
	})
}

// hostile writes the fuzzer's rings: a descriptor table, which is also at
// 0x8000 for indirect descriptors to name, and an available ring.
func hostile(t *testing.T, d *queuetest.Driver, desc, avail []byte) {
	write := func(gpa uint64, p []byte, limit int) {
		if err := d.Mem.WriteAt(p[:min(len(p), limit)], gpa); err != nil {
			t.Fatal(err)
		}
	}
	write(d.Cfg.Desc, desc, int(d.Cfg.Size)*16)
	write(0x8000, desc, 4096)
	write(d.Cfg.Avail, avail, 6+2*int(d.Cfg.Size))
}

func activation(d *queuetest.Driver, features uint64) virtio.Activation {
	q := virtio.Queue{Queue: d.Queue()}
	return virtio.Activation{Memory: d.Mem, Features: features, Queues: []virtio.Queue{q, q}, Interrupt: newInterrupts()}
}

// FuzzSend lets the fuzzer write the rings and the memory that they name.
// Every frame that comes out has the length of one and a clean header, and
// every chain goes back.
func FuzzSend(f *testing.F) {
	f.Add(queuetest.Descriptor(0x9000, 72, 0, 0), []byte{0, 0, 1, 0, 0, 0}, append(header(1, 0, 0, 0, 34, 16, 0), frame(60)...), uint64(allSend))
	f.Add(append(queuetest.Descriptor(0x9000, 12, queuetest.Next, 1), queuetest.Descriptor(0x9000, 600, 0, 0)...),
		[]byte{0, 0, 2, 0, 0, 0, 1, 0}, header(1, 0x81, 54, 100, 34, 16, 3), uint64(allSend))
	f.Add(queuetest.Descriptor(0x8010, 16, queuetest.Indirect, 0), []byte{0, 0, 1, 0, 0, 0}, []byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, desc, avail, memory []byte, features uint64) {
		w := newWire(t)
		if err := unix.SetNonblock(int(w.near.Fd()), true); err != nil {
			t.Fatal(err)
		}
		d := queuetest.New(t, queuetest.Memory(t, 1<<20), 0x1000, 1<<19, 16)
		hostile(t, d, desc, avail)
		if err := d.Mem.WriteAt(memory[:min(len(memory), 1<<18)], 0x9000); err != nil {
			t.Fatal(err)
		}
		a := activation(d, features&allSend)
		var m Metrics
		s := newSender(a, int(w.near.Fd()), &m.Send)
		_, err := s.Serve()
		if err != nil && !errors.Is(err, queue.ErrGuest) {
			t.Fatalf("error %v", err)
		}
		settled(t, a.Queues[0].Queue)
		for range m.Send.Frames.Load() {
			got := w.take()
			if len(got) < headerSize+minFrame || len(got) > headerSize+maxFrame {
				t.Fatalf("frame of %d bytes", len(got))
			}
			h := [headerSize]byte(got)
			if !cleanHeader(&h, uint32(len(got)-headerSize), features) || h != [headerSize]byte(got) {
				t.Fatalf("header %x", got[:headerSize])
			}
		}
	})
}

// FuzzReceive lets the fuzzer write the rings and choose the lengths of
// frames. Nothing is lost track of: in the end every chain is back.
func FuzzReceive(f *testing.F) {
	f.Add(queuetest.Descriptor(0x9000, 2000, queuetest.Write, 0), []byte{0, 0, 1, 0, 0, 0}, []byte{0, 60, 3, 0}, true)
	f.Add(append(queuetest.Descriptor(0x9000, 100, queuetest.Write, 0), queuetest.Descriptor(0x9400, 50, queuetest.Write, 0)...),
		[]byte{0, 0, 3, 0, 0, 0, 1, 0, 0, 0}, []byte{0, 160, 0, 1}, true)
	f.Add(append(queuetest.Descriptor(0x8010, 16, queuetest.Indirect, 0), queuetest.Descriptor(0x9000, 1<<19, queuetest.Write, 0)...),
		[]byte{0, 0, 1, 0, 0, 0}, []byte{255, 255, 0, 14}, false)
	f.Fuzz(func(t *testing.T, desc, avail, lengths []byte, merge bool) {
		w := newWire(t)
		if err := unix.SetNonblock(int(w.near.Fd()), true); err != nil {
			t.Fatal(err)
		}
		d := queuetest.New(t, queuetest.Memory(t, 1<<20), 0x1000, 1<<19, 16)
		hostile(t, d, desc, avail)
		features := uint64(FeatureGuestCSum)
		if merge {
			features |= FeatureMergeRX
		}
		a := activation(d, features)
		var m Metrics
		r := newReceiver(a, int(w.near.Fd()), &m.Receive)
		r.prepare()
		sent := uint64(0)
		for ; len(lengths) >= 2 && sent < 20; lengths = lengths[2:] {
			n := min(int(binary.BigEndian.Uint16(lengths)), maxFrame)
			w.put(make([]byte, headerSize+n))
			sent++
		}
		var failed bool
		for range 2 * sent {
			st, err := r.serve()
			if err != nil && !errors.Is(err, queue.ErrGuest) {
				t.Fatalf("error %v", err)
			}
			if failed = err != nil; failed || st != more {
				break
			}
		}
		r.release()
		settled(t, a.Queues[0].Queue)
		c := m.Counters()
		if got := c.ReceiveFrames + c.ReceiveOversize + c.ReceiveDropped; got > sent {
			t.Fatalf("%d frames of %d: %+v", got, sent, c)
		}
	})
}
