// Package net is the virtio network device (virtio 1.3 §5.1): frames between
// a guest and a tap that the host opened and configured (package tap).
//
//	guest ──send queue──▶ sender ──writev──▶ tap ──▶ the tap's namespace
//	guest ◀─receive queue─ receiver ◀─readv── tap ◀──
//
// There is one queue for each direction and no control queue. Payload is
// never copied by the device, but for the tail of a frame that came when the
// driver had too few buffers. The device decides nothing about who may talk
// to whom: that is for programs on the tap.
//
// Everything from the guest is hostile: chains are checked by package queue,
// headers by cleanHeader. What comes from the tap is the host kernel's word.
package net

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// Queue numbers, virtio 1.3 §5.1.2.
const (
	receiveQueue = 0
	sendQueue    = 1
)

// queueSize is the largest size of a queue, in entries.
const queueSize = 256

// Device is a network device on a tap.
type Device struct {
	options Options
	tap     *os.File
	fd      int
	metrics Metrics

	receive *virtio.Worker // while active
	send    *virtio.Worker

	// restored is set until the device is active for the first time after a
	// restore.
	restored bool

	mu     sync.Mutex
	linkUp bool // protected by mu; as the driver knows it
}

var _ virtio.Device = (*Device)(nil)

// New returns an inactive device on tap, which must be what tap.Open
// returned, with its offloads as options say. The device makes it
// non-blocking and does not close it.
func New(tap *os.File, options Options) (*Device, error) {
	if err := options.check(); err != nil {
		return nil, fmt.Errorf("net: make device: %w", err)
	}
	fd := int(tap.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, fmt.Errorf("net: make tap non-blocking: %w", err)
	}
	return &Device{options: options, tap: tap, fd: fd, linkUp: true}, nil
}

// ID implements virtio.Device.
func (d *Device) ID() virtio.DeviceID { return virtio.NetID }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return d.options.features() }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize, queueSize} }

// Metrics returns the device's counters.
func (d *Device) Metrics() *Metrics { return &d.metrics }

// Config implements virtio.Device.
func (d *Device) Config() []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.options.config(d.linkUp)
}

// WriteConfig implements virtio.Device: no field is the driver's to write.
func (d *Device) WriteConfig(uint32, []byte) {}

// Activate implements virtio.Device. It fails when the tap has offloads that
// the driver did not take: frames that need them would arrive and mean
// nothing to it. The tap's offloads cannot be changed from inside of the jail.
func (d *Device) Activate(a virtio.Activation) error {
	if missing := d.options.features() & receiveOffloads &^ a.Features; missing != 0 {
		return fmt.Errorf("net: driver does not take the tap's offloads (features %#x): %w", missing, queue.ErrGuest)
	}
	for i, q := range a.Queues {
		if q.Queue == nil || q.Size() > queueSize {
			return fmt.Errorf("net: queue %d is not enabled or too large: %w", i, queue.ErrGuest)
		}
	}
	s := newSender(a, d.fd, &d.metrics.Send)
	d.send = a.StartPolling(sendQueue, s, s.inBulk)
	r := newReceiver(a, d.fd, &d.metrics.Receive)
	p := &pump{receiver: r, sending: s.inBulk, lost: func() { d.setLink(false, a.Interrupt) }}
	if d.restored {
		d.restored = false
		p.arrive = func() {
			r.discard()
			d.setLink(true, a.Interrupt)
		}
	}
	d.receive = a.Start(receiveQueue, p)
	return nil
}

// setLink tells the driver that the tap is gone, or there again. Only the daemon
// can bring it back, by a new device.
func (d *Device) setLink(up bool, i virtio.Interrupt) {
	d.mu.Lock()
	changed := d.linkUp != up
	d.linkUp = up
	d.mu.Unlock()
	if changed {
		i.ConfigChanged()
	}
}

// Pause implements virtio.Device. Frames that come meanwhile wait in the tap's
// own queue.
func (d *Device) Pause() {
	if d.receive != nil {
		d.receive.Pause()
		d.send.Pause()
	}
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	if d.receive != nil {
		d.receive.Resume()
		d.send.Resume()
	}
}

// Reset implements virtio.Device.
func (d *Device) Reset() {
	if d.receive != nil {
		d.receive.Stop()
		d.send.Stop()
		d.receive, d.send = nil, nil
	}
}
