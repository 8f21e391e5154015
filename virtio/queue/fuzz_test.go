package queue_test

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

// FuzzPop lets the fuzzer write the descriptor table, the available ring and
// an indirect table, and choose the calls. Whatever it does, chains stay
// inside of guest memory, and errors wrap ErrGuest.
func FuzzPop(f *testing.F) {
	f.Add([]byte{0, 16, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 1, 0}, []byte{0, 0, 1, 0, 0, 0}, uint8(4))
	f.Add(queuetest.Descriptor(0x8000, 32, queuetest.Indirect, 0), []byte{0, 0, 1, 0, 0, 0}, uint8(2))
	f.Fuzz(func(t *testing.T, desc, avail []byte, calls uint8) {
		d := newDriver(t, 16)
		d.Cfg.EventIndex = calls&1 != 0
		q := d.Queue()
		write := func(gpa uint64, p []byte, limit int) {
			if err := d.Mem.WriteAt(p[:min(len(p), limit)], gpa); err != nil {
				t.Fatal(err)
			}
		}
		write(d.Cfg.Desc, desc, 256)
		write(0x8000, desc, len(desc)) // a table that descriptors may name
		write(d.Cfg.Avail, avail, 4+32+2)
		var c queue.Chain
		for range calls {
			ok, err := q.Pop(&c)
			if err != nil {
				if !errors.Is(err, queue.ErrGuest) {
					t.Fatalf("error %v does not wrap ErrGuest", err)
				}
				return
			}
			if !ok {
				q.EnableNotify()
				return
			}
			r, w := c.Reader(), c.Writer()
			n, err := io.Copy(io.Discard, io.LimitReader(&r, 1<<16))
			if err != nil || n > int64(c.ReadLen()) {
				t.Fatalf("read %d of %d: %v", n, c.ReadLen(), err)
			}
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], 1)
			k, _ := w.Write(word[:])
			q.Push(&c, uint32(k))
			q.Publish()
		}
	})
}
