package block

import (
	"errors"
	"sync"
	"sync/atomic"

	"thaw/virtio"
	"thaw/virtio/block/disk"
	"thaw/virtio/queue"
)

// batchBytes ends a batch, and the driver is told of what is done: a guest
// that reads ahead works on the first part meanwhile.
const batchBytes = 512 << 10

// server serves the queue of an active device.
type server struct {
	dev       *Device
	disk      *disk.Disk
	queue     *queue.Queue
	interrupt virtio.Interrupt
	worker    *virtio.Worker
	pool      pool
	// syncWrites is set when the driver did not accept FLUSH: then it counts
	// on every write being durable (virtio 1.3 §5.2.6.2).
	syncWrites bool

	// Only the worker uses these.
	idle     []*request // free for the next chain
	made     int        // requests in all
	answered []*request // answered, not yet in the used ring
	bufs     [][]byte
	spans    [maxRanges]span

	// mu guards the used ring's side of the queue, which the worker and the
	// pool share: once a batch for the worker, once a request for the pool.
	// Taking chains from the available ring is the worker's alone and touches
	// other fields.
	mu       sync.Mutex
	returned []*request // protected by mu; free, given back by the pool
	inFlight int        // protected by mu; with the pool
	back     sync.Cond  // of mu: a request came back from the pool
}

func newServer(d *Device, a virtio.Activation) *server {
	s := &server{
		dev: d, disk: d.disk,
		queue: a.Queues[0].Queue, interrupt: a.Interrupt,
		syncWrites: a.Features&featureFlush == 0,
	}
	s.back.L = &s.mu
	s.pool.init(s.runPooled)
	return s
}

// pause returns when every request taken is answered.
func (s *server) pause() {
	s.worker.Pause()
	s.drain()
}

func (s *server) stop() {
	s.worker.Stop()
	s.drain()
	s.pool.close()
}

func (s *server) drain() {
	s.mu.Lock()
	for s.inFlight > 0 {
		s.back.Wait()
	}
	s.mu.Unlock()
}

// Waiting implements virtio.Handler.
func (s *server) Waiting() bool { return s.queue.Available() }

// Enable implements virtio.Handler.
func (s *server) Enable() bool { return s.queue.EnableNotify() }

// Disable implements virtio.Handler.
func (s *server) Disable() { s.queue.DisableNotify() }

// Serve implements virtio.Handler. It returns after a bounded amount of work,
// so that a driver that never stops cannot hold up a pause.
func (s *server) Serve() (worked bool, err error) {
	defer s.publish()
	var moved int64
	for range s.queue.Size() {
		if !s.queue.Available() {
			break
		}
		r := s.take()
		ok, err := s.queue.Pop(&r.chain)
		if err == nil && ok {
			err = r.parse()
		}
		if err != nil || !ok { // the driver may have taken its index back
			s.idle = append(s.idle, r)
			return worked, err
		}
		worked = true
		if s.begin(r) {
			s.answered = append(s.answered, r)
			moved += r.data.Done()
		}
		if moved >= batchBytes || r.zeroes() {
			break
		}
	}
	return worked, nil
}

// take returns a free request. It waits for the pool when all are there: only
// a driver that offers a chain twice can bring that about.
func (s *server) take() *request {
	if len(s.idle) == 0 {
		s.publish()
	}
	if len(s.idle) == 0 {
		s.makeRequests()
	}
	if len(s.idle) == 0 {
		s.mu.Lock()
		for len(s.returned) == 0 {
			s.back.Wait()
		}
		s.idle = append(s.idle, s.returned...)
		s.returned = s.returned[:0]
		s.mu.Unlock()
	}
	r := s.idle[len(s.idle)-1]
	s.idle = s.idle[:len(s.idle)-1]
	return r
}

// someRequests is how many requests are made at a time: a restored device that
// does nothing yet, as most do for a while, has none.
const someRequests = 16

// makeRequests makes some more requests, up to one for each entry of the queue.
func (s *server) makeRequests() {
	some := make([]request, min(someRequests, int(s.queue.Size())-s.made))
	for i := range some {
		s.idle = append(s.idle, &some[i])
	}
	s.made += len(some)
}

// publish tells the driver of the worker's answered requests.
func (s *server) publish() {
	if len(s.answered) == 0 {
		return
	}
	s.mu.Lock()
	for _, r := range s.answered {
		s.push(r)
	}
	interrupt := s.queue.Publish()
	s.mu.Unlock()
	if interrupt {
		s.interrupt.Used()
	}
	s.idle = append(s.idle, s.answered...)
	s.answered = s.answered[:0]
}

// push puts an answered request into the used ring. The status is its last
// writable byte, so all of them count as written, whatever became of the data.
func (s *server) push(r *request) { s.queue.Push(&r.chain, r.chain.WriteLen()) }

// begin works on a request; it returns false when the pool has it now.
func (s *server) begin(r *request) (answered bool) {
	m := &s.dev.metrics
	r.data.Reset()
	status := byte(statusOK)
	switch r.kind {
	case typeIn:
		m.Reads.Add(1)
		var ok bool
		if s.bufs, ok = r.transfer(r.in, s.disk.Size(), s.bufs); !ok {
			status = s.refuse(statusIOError)
			break
		}
		err := s.disk.TryRead(&r.data, r.offset)
		if errors.Is(err, disk.ErrWouldBlock) {
			s.submit(r)
			return false
		}
		status = s.finish(err, &m.ReadBytes, r.data.Done())
	case typeOut:
		m.Writes.Add(1)
		var ok bool
		if s.bufs, ok = r.transfer(r.out, s.disk.Size(), s.bufs); !ok || s.disk.ReadOnly() {
			status = s.refuse(statusIOError)
			break
		}
		err := s.disk.Write(&r.data, r.offset, s.syncWrites)
		status = s.finish(err, &m.WrittenBytes, r.data.Done())
	case typeFlush:
		m.Flushes.Add(1)
		if !s.disk.ReadOnly() {
			s.submit(r)
			return false
		}
	case typeGetID:
		m.GetIDs.Add(1)
		s.writeID(r)
	case typeDiscard:
		m.Discards.Add(1)
		status = s.zero(r)
	case typeWriteZeroes:
		m.WriteZeroes.Add(1)
		status = s.zero(r)
	default:
		m.Unsupported.Add(1)
		status = statusUnsupported
	}
	r.setStatus(status)
	return true
}

// writeID answers GET_ID: 20 bytes, padded with zeros (virtio 1.3 §5.2.6).
func (s *server) writeID(r *request) {
	var id [idLen]byte
	copy(id[:], s.dev.name)
	_, _ = r.in.Write(id[:min(idLen, r.in.Len())])
}

// zero answers DISCARD and WRITE_ZEROES alike: discarded ranges read as
// zeros, so that what a guest can see does not depend on the layers.
func (s *server) zero(r *request) byte {
	if s.disk.ReadOnly() {
		return s.refuse(statusIOError)
	}
	spans, status := r.ranges(s.disk.Size(), &s.spans)
	if status != statusOK {
		return s.refuse(status)
	}
	for _, sp := range spans {
		if err := s.disk.Zero(sp.offset, sp.length); err != nil {
			return s.finish(err, nil, 0)
		}
	}
	return statusOK
}

// finish turns the outcome of a transfer of n bytes into a status.
func (s *server) finish(err error, bytes *atomic.Uint64, n int64) byte {
	if err != nil {
		s.dev.metrics.hostError(err)
		return statusIOError
	}
	if bytes != nil {
		bytes.Add(uint64(n))
	}
	return statusOK
}

// refuse counts a request that the driver should not have made.
func (s *server) refuse(status byte) byte {
	s.dev.metrics.Refused.Add(1)
	return status
}
