package net

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// maxPieces bounds the pieces of guest memory that are gathered for one frame,
// well under the kernel's limit for one call (1024) with one chain more.
const maxPieces = 512

// receiver moves frames from the tap to the guest.
//
// The length of a frame is known only once it has been read, so buffers are
// gathered ahead and one read fills them; what does not fit goes to a tail of
// our own, from where it is copied into further buffers, now or when the
// driver adds some:
//
//	gathered   ├ chain ┼ chain ┼ chain ┤ tail (ours) ┤
//	frame      ├─────────────────┤                        fits: no copy
//	frame      ├────────────────────────────┤             tail copied on
//
// Buffers that a frame left over stay for the next; release gives them back.
type receiver struct {
	queue     *queue.Queue
	interrupt virtio.Interrupt
	fd        int
	merge     bool // frames may take several chains (VIRTIO_NET_F_MRG_RXBUF)
	csum      bool // the driver takes what the header says of checksums
	metrics   *ReceiveMetrics

	// Gathered chains: a ring of count, oldest at head.
	chains []gathered
	head   int
	count  int
	size   int // bytes in them
	// Their pieces, iov[start:end], with room for the tail at iov[end].
	iov        vectors
	start, end int
	slices     [][]byte

	tail  []byte
	frame int // length of a frame that waits for more buffers, or 0
	split int // how much of it is in the first chains, as many as
	whole int // this
}

// gathered is a popped chain.
type gathered struct {
	chain  queue.Chain
	size   int // bytes of it that are used at most
	pieces int
}

// status is why serve returned.
type status int

const (
	more    status = iota // the batch is full, there may be more
	drained               // the tap has no frame
	starved               // the guest has no buffer
	gone                  // the tap is of no use any more
)

func newReceiver(a virtio.Activation, fd int, m *ReceiveMetrics) *receiver {
	return &receiver{
		queue: a.Queues[receiveQueue].Queue, interrupt: a.Interrupt, fd: fd, metrics: m,
		merge: a.Features&FeatureMergeRX != 0, csum: a.Features&FeatureGuestCSum != 0,
	}
}

// prepare makes what frames are received with: a quarter of a megabyte, which a
// restored device has no need of before it runs.
func (r *receiver) prepare() {
	r.chains = make([]gathered, queueSize)
	r.iov, r.slices = make(vectors, 4*maxPieces), make([][]byte, 0, queueSize)
	// One byte more than any frame has: a read that fills it was cut.
	r.tail = make([]byte, headerSize+maxRead+1)
}

// serve delivers one batch. Each frame is published at once, for a driver
// that is looking; the interrupt comes at the end of the batch.
func (r *receiver) serve() (st status, err error) {
	interrupt := false
	st = more
	for frames, bytes := 0, 0; st == more && frames < batchFrames && bytes < batchBytes; frames++ {
		var n int
		if r.frame > 0 {
			n, st, err = r.finish()
		} else {
			n, st, err = r.receive()
		}
		if err != nil {
			return st, err
		}
		bytes += n
		if r.queue.Publish() {
			interrupt = true
		}
	}
	if interrupt {
		r.interrupt.Used()
	}
	return st, nil
}

// receive reads one frame and returns how many bytes of it were delivered.
func (r *receiver) receive() (int, status, error) {
	if err := r.gather(headerSize + maxRead); err != nil {
		return 0, more, err
	}
	if r.count == 0 {
		return 0, starved, nil
	}
	r.iov.set(r.end, r.tail)
	n, errno := r.iov[r.start : r.end+1].read(r.fd)
	switch {
	case errno == unix.EAGAIN:
		return 0, drained, nil
	case errno != 0 || n == 0:
		r.markWritten(r.size)
		return 0, gone, nil
	}
	if n <= r.size {
		return n, more, r.complete(n)
	}
	if !r.merge || n > headerSize+maxRead || n == r.size+len(r.tail) {
		return 0, more, r.oversize()
	}
	r.metrics.Split.Add(1)
	r.frame, r.split, r.whole = n, r.size, r.count
	return r.finish()
}

// finish delivers the frame that waits for buffers, if there are enough now.
func (r *receiver) finish() (int, status, error) {
	n := r.frame
	if err := r.gather(n); err != nil {
		return 0, more, err
	}
	if n > r.size {
		if r.count >= int(r.queue.Size()) || r.end-r.start >= maxPieces {
			return 0, more, r.oversize() // more than the driver can ever give
		}
		return 0, starved, nil
	}
	tail := r.tail[:n-r.split]
	for i := r.whole; len(tail) > 0; i++ {
		g := r.at(i)
		w := g.chain.Writer()
		k, _ := w.Write(tail[:min(len(tail), g.size)])
		tail = tail[k:]
	}
	r.frame = 0
	return n, more, r.complete(n)
}

// maxStale is how many frames discard drops at most: several times what a tap's
// queue holds.
const maxStale = 4096

// discard drops what waits in the tap: a restored machine must not get frames
// that were meant for the one before it. Preconditions: nothing is gathered.
func (r *receiver) discard() {
	r.iov.set(0, r.tail)
	for range maxStale {
		if n, errno := r.iov[:1].read(r.fd); errno != 0 || n == 0 {
			return // there is no more, or the tap is gone: serve finds out
		}
		r.metrics.Stale.Add(1)
	}
}

// oversize drops the frame that was read.
func (r *receiver) oversize() error {
	r.metrics.Oversize.Add(1)
	r.forget()
	return nil
}

// forget gives up the frame whose start is in the gathered chains.
func (r *receiver) forget() {
	r.markWritten(r.size)
	r.frame = 0
}

// gather pops chains until they hold n bytes, or there are none. Without
// merging a frame gets one chain.
func (r *receiver) gather(n int) error {
	for r.size < n && r.end-r.start < maxPieces && r.count < queueSize {
		if !r.merge && r.count == 1 {
			return nil
		}
		g := r.at(r.count)
		ok, err := r.queue.Pop(&g.chain)
		if !ok {
			return err
		}
		if g.chain.WriteLen() < headerSize {
			// §5.1.6.3.1: each buffer holds a header at least.
			r.queue.Unpop(1)
			return fmt.Errorf("net: receive buffer of %d bytes: %w", g.chain.WriteLen(), queue.ErrGuest)
		}
		g.size = int(min(g.chain.WriteLen(), headerSize+maxRead))
		w := g.chain.Writer()
		r.slices = w.Slices(r.slices[:0], uint32(g.size))
		g.pieces = len(r.slices)
		r.reserve(g.pieces)
		for _, b := range r.slices {
			r.iov.set(r.end, b)
			r.end++
		}
		r.size += g.size
		r.count++
	}
	return nil
}

// reserve makes room for n pieces and the tail behind the gathered ones.
func (r *receiver) reserve(n int) {
	if r.end+n+1 > len(r.iov) {
		r.end = copy(r.iov, r.iov[r.start:r.end])
		r.start = 0
	}
}

// at is the i-th gathered chain.
func (r *receiver) at(i int) *gathered { return &r.chains[(r.head+i)%queueSize] }

// complete gives the n bytes in the first gathered chains to the driver.
func (r *receiver) complete(n int) error {
	if n < headerSize {
		return fmt.Errorf("net: tap gave %d bytes, less than its header", n)
	}
	used := 0
	for size := 0; size < n; used++ {
		size += r.at(used).size
	}
	r.patchHeader(used)
	left := n
	for range used {
		g := r.at(0)
		k := min(left, g.size)
		r.queue.Push(&g.chain, uint32(k))
		left -= k
		r.size -= g.size
		r.start += g.pieces
		r.head = (r.head + 1) % queueSize
		r.count--
	}
	r.metrics.Frames.Add(1)
	r.metrics.Bytes.Add(uint64(n - headerSize))
	return nil
}

// patchHeader says in the frame's header, which is in the guest's memory
// already, how many chains it takes. The tap left that field alone. Nothing
// of the header is read: the guest may have changed it.
func (r *receiver) patchHeader(chains int) {
	var num [2]byte
	binary.LittleEndian.PutUint16(num[:], uint16(chains))
	w := r.at(0).chain.Writer()
	if !r.csum {
		// §5.1.6.4.1: no flags without VIRTIO_NET_F_GUEST_CSUM; the host
		// marks frames whose checksum it knows to be right.
		w.Write([]byte{0})
		w.Skip(offNumBuffers - 1)
	} else {
		w.Skip(offNumBuffers)
	}
	w.Write(num[:])
}

// markWritten says that the first n gathered bytes may have been written
// although their chains were not given to the driver.
func (r *receiver) markWritten(n int) {
	for i := 0; i < r.count && n > 0; i++ {
		g := r.at(i)
		r.queue.MarkWritten(&g.chain, uint32(min(n, g.size)))
		n -= g.size
	}
}

// release gives all gathered chains back to the queue, so that no chain is
// out while the device is paused. A frame that waits for buffers is dropped.
func (r *receiver) release() {
	if r.frame > 0 {
		r.metrics.Dropped.Add(1)
		r.forget()
	}
	r.queue.Unpop(r.count)
	r.head, r.count, r.size, r.start, r.end = 0, 0, 0, 0, 0
}
