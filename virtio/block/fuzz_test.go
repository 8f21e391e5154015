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
// files keep their size, a read-only disk its bytes, and a lower layer too. The
// seeds are in testdata.
func FuzzRequest(f *testing.F) {
	const size = 16 * 512
	want := pattern(size)
	f.Fuzz(func(t *testing.T, out []byte, cut, in1, in2 uint16, shape uint8) {
		layered, readOnly, indirect, noFlush := shape&1 != 0, shape&2 != 0, shape&4 != 0, shape&8 != 0
		dir := t.TempDir()
		options := Options{ID: "fuzz", Layers: []*os.File{diskFile(t, dir, size)}, ReadOnly: readOnly}
		if layered {
			options.Layers = append(options.Layers, diskFile(t, dir, 0))
		}
		dev := newDeviceOn(t, options)
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
		bottom := content(t, options.Layers[0])
		if len(bottom) != size {
			t.Fatalf("the file has %d bytes, had %d", len(bottom), size)
		}
		if (readOnly || layered) && !bytes.Equal(bottom, want) {
			t.Fatal("a file that nobody may write changed")
		}
		if layered {
			if top := content(t, options.Layers[1]); len(top) > size || (readOnly && len(top) > 0) {
				t.Fatalf("the top has %d bytes of a disk of %d", len(top), size)
			}
		}
	})
}
