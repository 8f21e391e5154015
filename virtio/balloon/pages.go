package balloon

import (
	"encoding/binary"
	"fmt"
	"math"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// maxPages bounds the page numbers of one request: Linux sends 256 at most,
// and a request is what a Pause may have to wait for.
const maxPages = 4096

// ring is what the handlers of all queues have in common.
type ring struct {
	queue     *queue.Queue
	interrupt virtio.Interrupt
	chain     queue.Chain
}

// Waiting, Enable and Disable are the queue's.
func (r *ring) Waiting() bool { return r.queue.Available() }

func (r *ring) Enable() bool { return r.queue.EnableNotify() }

func (r *ring) Disable() { r.queue.DisableNotify() }

// answer gives the popped chain back.
func (r *ring) answer() { r.answerWritten(0) }

// answerWritten gives back the chain, of which so many bytes were written.
func (r *ring) answerWritten(n uint32) {
	r.queue.Push(&r.chain, n)
	if r.queue.Publish() {
		r.interrupt.Used()
	}
}

// numbers is a copy of one request's page numbers. It is made when there is one.
type numbers []byte

// pages pops a request of 32-bit page numbers and copies them. The result is nil
// when there is no request.
func (r *ring) pages(copied *numbers) ([]byte, error) {
	ok, err := r.queue.Pop(&r.chain)
	if !ok {
		return nil, err
	}
	n := r.chain.ReadLen()
	if n > maxPages*4 || n%4 != 0 {
		return nil, fmt.Errorf("balloon: request of %d bytes, not of up to %d page numbers: %w", n, maxPages, queue.ErrGuest)
	}
	if *copied == nil {
		*copied = make(numbers, maxPages*4)
	}
	c := r.chain.Reader()
	k, _ := c.Read((*copied)[:n]) // an error means empty
	return (*copied)[:k], nil
}

// inflater serves the inflate queue: pages that the guest gives up until it
// deflates (virtio 1.3 §5.5.6).
type inflater struct {
	ring
	reclaimer reclaimer
	numbers   numbers
	spans     []span
}

// Serve answers one request.
func (h *inflater) Serve() (bool, error) {
	numbers, err := h.pages(&h.numbers)
	if numbers == nil {
		return false, err
	}
	h.spans = h.spans[:0]
	for p := numbers; len(p) > 0; p = p[4:] {
		s := span{uint64(binary.LittleEndian.Uint32(p)) * pageSize, pageSize}
		if !h.reclaimer.isRAM(s) {
			h.reclaimer.metrics.Invalid.Add(1)
			continue
		}
		h.spans = append(h.spans, s)
	}
	h.reclaimer.metrics.Inflated.Add(uint64(len(h.spans)))
	h.reclaimer.give(h.spans)
	h.answer()
	return true, nil
}

// deflater serves the deflate queue. A page that the guest takes back needs
// nothing of us: its first touch brings it.
type deflater struct {
	ring
	metrics *Metrics
	numbers numbers
}

// Serve answers one request.
func (h *deflater) Serve() (bool, error) {
	numbers, err := h.pages(&h.numbers)
	if numbers == nil {
		return false, err
	}
	h.metrics.Deflated.Add(uint64(len(numbers) / 4))
	h.answer()
	return true, nil
}

// reporter serves the reporting queue: memory that is free in the guest and
// may lose its content until it is used again (virtio 1.3 §5.5.6.7). The
// buffers are the memory itself.
//
// When every byte of them is zero now, the answer says that all was written, else that
// nothing was. That is between this device and a kernel that knows it
// (kernel/zeroed-pages.patch), which need not clear these pages again; for others the
// length means nothing.
type reporter struct {
	ring
	reclaimer reclaimer
	spans     []span
}

// Serve answers one request.
func (h *reporter) Serve() (bool, error) {
	ok, err := h.queue.Pop(&h.chain)
	if !ok {
		return false, err
	}
	h.spans = h.spans[:0]
	var reported uint64
	for gpa, n := range h.chain.WritableRanges() {
		reported += uint64(n)
		// Whole pages inside of the buffer: those in part may hold more.
		start := (gpa + pageSize - 1) &^ (pageSize - 1)
		end := (gpa + uint64(n)) &^ (pageSize - 1)
		if start >= end || !h.reclaimer.isRAM(span{start, end - start}) {
			h.reclaimer.metrics.Invalid.Add(1)
			continue
		}
		h.spans = append(h.spans, span{start, end - start})
	}
	given, zeros := h.reclaimer.give(h.spans)
	h.reclaimer.metrics.ReportedBytes.Add(given)
	written := uint32(0)
	if zeros == reported && reported <= math.MaxUint32 {
		written = uint32(reported)
	}
	h.answerWritten(written)
	return true, nil
}
