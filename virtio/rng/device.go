// Package rng is the virtio entropy device (virtio 1.3 §5.4): the driver
// offers empty buffers, and gets them back filled by getrandom(2).
//
// A guest that asks without end would burn a host CPU, so the bytes are
// metered. While the bucket is empty the worker sleeps, whatever the driver
// does, until a timer wakes it:
//
//	         tokens left                bucket empty
//	┌─▶ fill buffers ──▶ wait for kick    fill ──▶ set timer, sleep
//	└──────── kick ───────────┘                          │ timer
//	┌────────────────────────────────────────────────────┘
//	└─▶ fill buffers …
//
// The device keeps no randomness: two machines restored from one snapshot get
// different bytes.
package rng

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
)

const (
	queueSize = 64
	// MaxRequest is how many bytes one request gets at most; the driver asks
	// again for more.
	MaxRequest = 64 << 10
	// DefaultRate is a sensible Options.Rate, in bytes a second: a kernel asks
	// for a few hundred bytes at boot and a few a minute later.
	DefaultRate = 1 << 20
	// rest is how long the worker sleeps at least when the bucket is empty,
	// so that a guest cannot make it wake up for every few tokens.
	rest = 10 * time.Millisecond
)

// Options says how much a guest may have.
type Options struct {
	// Rate is in bytes a second and must be positive; a burst of MaxRequest
	// or of one second's worth, whichever is more, is allowed.
	Rate int64
}

// ErrRate is wrapped when a rate is not between 1 and MaxRate.
var ErrRate = errors.New("rate is out of range")

// Device is an entropy device.
type Device struct {
	bucket  bucket
	metrics Metrics
	server  *server // nil when inactive
}

var _ virtio.Device = (*Device)(nil)

// New returns an inactive device.
func New(options Options) (*Device, error) {
	b, err := newBucket(options.Rate)
	if err != nil {
		return nil, err
	}
	return &Device{bucket: b}, nil
}

// ID implements virtio.Device.
func (d *Device) ID() virtio.DeviceID { return virtio.RNGID }

// Activate implements virtio.Device.
func (d *Device) Activate(a virtio.Activation) error {
	if len(a.Queues) != 1 || a.Queues[0].Queue == nil {
		return fmt.Errorf("rng: activate: the request queue is not set up: %w", queue.ErrGuest)
	}
	s := &server{dev: d, queue: a.Queues[0], interrupt: a.Interrupt}
	s.timer = time.AfterFunc(time.Hour, s.wake)
	s.timer.Stop()
	s.worker = a.Start(0, s)
	d.server = s
	return nil
}

// Pause implements virtio.Device.
func (d *Device) Pause() {
	if d.server != nil {
		d.server.worker.Pause()
	}
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	if d.server != nil {
		d.server.worker.Resume()
	}
}

// Reset implements virtio.Device. The bucket stays as it is: a reset gives a
// guest nothing that it had to wait for.
func (d *Device) Reset() {
	if d.server != nil {
		d.server.stop()
		d.server = nil
	}
}

// server serves the queue of an active device.
type server struct {
	dev       *Device
	queue     virtio.Queue
	interrupt virtio.Interrupt
	worker    *virtio.Worker
	chain     queue.Chain
	bufs      [][]byte
	empty     bool // the bucket is, and the timer is set

	timer *time.Timer
	mu    sync.Mutex
	ended bool // protected by mu: the kick may be closed
}

func (s *server) stop() {
	s.worker.Stop()
	s.mu.Lock()
	s.ended = true
	s.mu.Unlock()
	s.timer.Stop()
}

// wake ends the worker's sleep when there are tokens again.
func (s *server) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		_ = s.queue.Kick.Signal()
	}
}

// Waiting implements virtio.Handler: nothing waits while the bucket is empty.
func (s *server) Waiting() bool { return !s.empty && s.queue.Available() }

// Enable implements virtio.Handler. With an empty bucket it asks for no kick.
func (s *server) Enable() bool {
	if s.empty {
		return false
	}
	return s.queue.EnableNotify()
}

// Disable implements virtio.Handler.
func (s *server) Disable() { s.queue.DisableNotify() }

// Serve implements virtio.Handler.
func (s *server) Serve() (worked bool, err error) {
	defer func() {
		if s.queue.Publish() {
			s.interrupt.Used()
		}
	}()
	s.empty = false
	for range s.queue.Size() {
		if !s.queue.Available() {
			break
		}
		if wait := s.dev.bucket.wait(time.Now()); wait > 0 {
			s.dev.metrics.Throttled.Add(1)
			s.empty = true
			s.timer.Reset(max(wait, rest))
			break
		}
		ok, err := s.queue.Pop(&s.chain)
		if err != nil || !ok {
			return worked, err
		}
		worked = true
		n, err := s.fill()
		s.queue.Push(&s.chain, n)
		if err != nil {
			return worked, err
		}
	}
	return worked, nil
}

// fill puts random bytes into the popped chain and returns how many. A part
// that the device could read, against the rules, is ignored.
func (s *server) fill() (uint32, error) {
	w := s.chain.Writer()
	n := min(w.Len(), MaxRequest)
	s.bufs = w.Slices(s.bufs[:0], n)
	for _, b := range s.bufs {
		for len(b) > 0 {
			got, err := unix.Getrandom(b, 0)
			if err != nil && !errors.Is(err, unix.EINTR) {
				return 0, fmt.Errorf("rng: get random bytes: %w", err)
			}
			b = b[max(got, 0):]
		}
	}
	// A request costs something even when it is for nothing.
	s.dev.bucket.spend(int64(max(n, minCost)))
	s.dev.metrics.Requests.Add(1)
	s.dev.metrics.Bytes.Add(uint64(n))
	return n, nil
}
