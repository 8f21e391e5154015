package rng

import (
	"errors"
	"testing"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// FuzzQueue lets the fuzzer write the descriptor table and the available
// ring. Whatever is in them, the device answers with no more than it was
// asked for, or with an error that wraps queue.ErrGuest.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, desc, avail []byte) {
		r := newRig(t, MaxRate)
		s := &server{dev: r.dev, queue: virtio.Queue{Queue: r.Queue(), Kick: r.kick}, interrupt: interrupt{r}}
		for gpa, p := range map[uint64][]byte{
			r.Cfg.Desc:  desc[:min(len(desc), queueSize*16)],
			r.Cfg.Avail: avail[:min(len(avail), 4+queueSize*2+2)],
		} {
			if err := r.Mem.WriteAt(p, gpa); err != nil {
				t.Fatal(err)
			}
		}
		// Buffers may lie over the rings, so what is in them afterwards says
		// nothing; that the device goes on or stops is the property.
		if _, err := s.Serve(); err != nil && !errors.Is(err, queue.ErrGuest) {
			t.Fatalf("error %v does not wrap ErrGuest", err)
		}
		if n := r.dev.Metrics(); n.Bytes.Load() > n.Requests.Load()*MaxRequest {
			t.Fatalf("%d bytes for %d requests", n.Bytes.Load(), n.Requests.Load())
		}
	})
}
