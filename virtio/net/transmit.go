package net

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// A batch ends after so many frames or bytes at the latest: the driver then
// learns what was used, and the worker sees whether it should pause.
const (
	batchFrames = 64
	batchBytes  = 256 << 10
)

// sender moves frames from the guest to the tap. It is a virtio.Handler.
//
// Payload goes from guest memory into the kernel in one system call; only the
// header is copied, checked, and the copy used. A frame that the tap does not
// take at once is dropped, as a full network card drops it: waiting would let
// one slow receiver stop all of the guest's traffic.
type sender struct {
	queue     *queue.Queue
	interrupt virtio.Interrupt
	fd        int
	features  uint64
	metrics   *SendMetrics

	bulk   atomic.Bool // the last batch had a large frame
	chain  queue.Chain
	header [headerSize]byte
	slices [][]byte
	iov    vectors
}

func newSender(a virtio.Activation, fd int, m *SendMetrics) *sender {
	s := &sender{
		queue: a.Queues[sendQueue].Queue, interrupt: a.Interrupt, fd: fd, features: a.Features, metrics: m,
		slices: make([][]byte, 0, queueSize), iov: make(vectors, 1+queueSize),
	}
	s.iov.set(0, s.header[:])
	return s
}

// largeFrame is a frame that only a sender with much to send makes, in bytes.
const largeFrame = 8 << 10

// inBulk says whether the guest is sending much: then more comes soon. A guest
// that receives sends acknowledgements, and looking out for those takes the CPU
// from whoever it receives from.
func (s *sender) inBulk() bool { return s.bulk.Load() }

// Serve sends one batch.
func (s *sender) Serve() (worked bool, err error) {
	bulk := false
	for frames, bytes := 0, uint32(0); frames < batchFrames && bytes < batchBytes; frames++ {
		ok, err := s.queue.Pop(&s.chain)
		if err != nil {
			return worked, err
		}
		if !ok {
			break
		}
		s.send()
		bulk = bulk || s.chain.ReadLen() >= largeFrame
		bytes += min(s.chain.ReadLen(), maxFrame)
		s.queue.Push(&s.chain, 0)
		worked = true
	}
	if worked && bulk != s.bulk.Load() {
		s.bulk.Store(bulk)
	}
	if s.queue.Publish() {
		s.interrupt.Used()
	}
	return worked, nil
}

// send writes the popped chain to the tap, or counts why not.
func (s *sender) send() {
	total := s.chain.ReadLen()
	switch {
	case total < headerSize+minFrame:
		s.metrics.Runts.Add(1)
		return
	case total > headerSize+maxFrame:
		s.metrics.Oversize.Add(1)
		return
	}
	frame := total - headerSize
	r := s.chain.Reader()
	r.Read(s.header[:]) // the length was checked: it fills the header
	if !cleanHeader(&s.header, frame, s.features) {
		s.metrics.Malformed.Add(1)
		return
	}
	s.slices = r.Slices(s.slices[:0], frame)
	for i, b := range s.slices {
		s.iov.set(1+i, b)
	}
	switch _, errno := s.iov[:1+len(s.slices)].write(s.fd); errno {
	case 0:
		s.metrics.Frames.Add(1)
		s.metrics.Bytes.Add(uint64(frame))
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		s.metrics.Full.Add(1)
	default:
		s.metrics.Refused.Add(1)
	}
}

// Waiting, Enable and Disable are the queue's.
func (s *sender) Waiting() bool { return s.queue.Available() }

func (s *sender) Enable() bool { return s.queue.EnableNotify() }

func (s *sender) Disable() { s.queue.DisableNotify() }
