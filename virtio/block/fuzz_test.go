package block

import (
	"bytes"
	"errors"
	"os"
	"testing"

	"thaw/virtio"
	"thaw/virtio/queue"
	"thaw/virtio/queue/queuetest"
)

// FuzzRequest sends one request made of arbitrary bytes: header and payload
// in two buffers cut anywhere, and two buffers to fill. Whatever it is, the
// files keep their size, a read-only disk its bytes, and a frozen layer too.
func FuzzRequest(f *testing.F) {
	add := func(kind uint32, sector uint64, payload []byte, cut, in1, in2 uint16, shape uint8) {
		f.Add(append(encodeHeader(kind, sector), payload...), cut, in1, in2, shape)
	}
	add(typeIn, 3, nil, 16, 1024, 1, 0)
	add(typeIn, 7, nil, 4, 511, 2, 1)
	add(typeOut, 0, make([]byte, 4096), 16, 0, 1, 2)
	add(typeOut, 15, make([]byte, 1024), 100, 0, 1, 3)
	add(typeOut, 1<<63, make([]byte, 512), 16, 0, 1, 4)
	add(typeFlush, 0, nil, 16, 0, 1, 0)
	add(typeGetID, 0, nil, 16, 20, 1, 0)
	add(typeGetID, 0, nil, 16, 3, 1, 4)
	add(typeDiscard, 0, encodeRange(0, 8, 0), 16, 0, 1, 2)
	add(typeWriteZeroes, 0, append(encodeRange(3, 8, 1), encodeRange(15, 1, 0)...), 30, 0, 1, 3)
	add(typeWriteZeroes, 0, encodeRange(1<<64-1, 1<<32-1, 1), 16, 0, 1, 0)
	add(99, 0, nil, 0, 0, 0, 8)

	const size = 16 * 512
	want := pattern(size)
	f.Fuzz(func(t *testing.T, out []byte, cut, in1, in2 uint16, shape uint8) {
		layered, readOnly, indirect, noFlush := shape&1 != 0, shape&2 != 0, shape&4 != 0, shape&8 != 0
		dir := t.TempDir()
		cfg := Config{ID: "fuzz", Layers: []*os.File{diskFile(t, dir, size)}, ReadOnly: readOnly}
		if layered {
			cfg.Layers = append(cfg.Layers, diskFile(t, dir, 0))
		}
		dev := newDeviceOn(t, cfg)
		features := dev.Features()
		if noFlush {
			features &^= featureFlush
		}
		r := newIdleRig(t, dev)
		s := newServer(dev, virtio.Activation{Features: features, Queues: []virtio.Queue{{Queue: r.Queue()}}, Interrupt: r.irq})
		defer s.pool.close()
		out = out[:min(len(out), 1<<20)]
		k := min(int(cut), len(out))
		chain := []queuetest.Buffer{r.Readable(out[:k]), r.Readable(out[k:]), r.Writable(uint32(in1)), r.Writable(uint32(in2))}
		if indirect {
			r.AddIndirect(chain...)
		} else {
			r.Add(chain...)
		}
		_, err := s.Serve()
		s.drain()
		if err != nil {
			if !errors.Is(err, queue.ErrGuest) {
				t.Fatalf("error %v does not wrap ErrGuest", err)
			}
		} else if _, n, ok := r.Used(); !ok || n != uint32(in1)+uint32(in2) {
			t.Fatalf("answered %v with %d bytes of %d", ok, n, uint32(in1)+uint32(in2))
		}
		bottom := content(t, cfg.Layers[0])
		if len(bottom) != size {
			t.Fatalf("the file has %d bytes, had %d", len(bottom), size)
		}
		if (readOnly || layered) && !bytes.Equal(bottom, want) {
			t.Fatal("a file that nobody may write changed")
		}
		if layered {
			if top := content(t, cfg.Layers[1]); len(top) > size || (readOnly && len(top) > 0) {
				t.Fatalf("the top has %d bytes of a disk of %d", len(top), size)
			}
		}
	})
}
