// Package vsock is the virtio socket device (virtio 1.3 §5.10) with Unix
// sockets on the host's side: stream connections between the guest and the
// processes that hold its sockets. There is no vhost.
//
//	host process ── Unix socket ──▶ reader ──▶ receive queue ──▶ guest
//	host process ◀── Unix socket ── writer ◀── buffer ◀── worker ◀── transmit queue
//
// The host connects by writing "CONNECT port\n" to the listener and reads
// "OK hostport\n" once the guest has accepted. A guest that connects is handed
// to Options.Connect, which gives the host's end or refuses.
//
// Connections do not outlive a restore. A guest that had some is told so, and
// nothing is connected, in either direction, before it has taken that in.
//
// Flow control is the standard's credit (§5.10.6.3): a sender knows how much
// room the other side has. What the guest sends beyond what it was promised
// ends that connection. Memory is bounded by connections times buffer.
package vsock

import (
	"fmt"
	"os"
	"sync"

	"thaw/virtio"
	"thaw/virtio/queue"
)

// Queue numbers and the size of each, virtio 1.3 §5.10.2.
const (
	receiveQueue  = 0
	transmitQueue = 1
	queueSize     = 256

	// receiveSize is that of the receive queue. Linux fills a queue with buffers when it is
	// half empty, all at once. With 256 a snapshot that was saved just before had all of
	// its restores do that: 240 walks of page tables, traced in one on a pvm host.
	receiveSize = 64

	// eventQueue has work only when connections end with a restore.
	eventQueue = 2
)

// Limits of one device.
const (
	// maxConns is how many connections can exist, opening ones included.
	maxConns = 128
	// bufferSize is how many bytes of a connection wait here for a slow host
	// process, at most; it is the credit that the guest gets.
	bufferSize = 256 << 10
	// maxPayload is how much is sent to the guest in one packet.
	maxPayload = 64 << 10
	// firstHostPort is where ports for connections of the host begin.
	firstHostPort = 1 << 30
)

// Options is what the host chooses.
type Options struct {
	CID uint64 // of the guest, 3 or more
	// Host takes the host's connections. Devices that follow each other share it.
	Host *Host
	// Connect returns the host's end for a connection that the guest makes to
	// port, or an error to refuse. It may block, and the device may be reset
	// meanwhile; it is called on a goroutine of its own. May be nil: every
	// connection is refused.
	Connect func(port uint32) (*os.File, error)
}

// Device is a socket device.
type Device struct {
	options Options
	config  []byte
	metrics Metrics

	mu     sync.Mutex
	active *session // protected by mu; nil when inactive
	// lost is how many connections a restored guest believes open, which are
	// gone: it has to be told before there are new ones. Protected by mu.
	lost     uint32
	nextPort uint32 // protected by mu; see State
}

var _ virtio.Device = (*Device)(nil)

// New returns an inactive device.
func New(options Options) (*Device, error) {
	if err := checkCID(options.CID); err != nil {
		return nil, fmt.Errorf("vsock: make device: %w", err)
	}
	if options.Host == nil {
		options.Host = NewHost(nil)
	}
	return &Device{options: options, config: encodeConfig(options.CID), nextPort: firstHostPort}, nil
}

// ID implements virtio.Device.
func (d *Device) ID() virtio.DeviceID { return virtio.VsockID }

// Features implements virtio.Device: streams, which need no bit.
func (d *Device) Features() uint64 { return 0 }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{receiveSize, queueSize, queueSize} }

// Config implements virtio.Device.
func (d *Device) Config() []byte { return d.config }

// WriteConfig implements virtio.Device: everything is read-only.
func (d *Device) WriteConfig(uint32, []byte) {}

// Metrics returns the device's counters.
func (d *Device) Metrics() *Metrics { return &d.metrics }

// Activate implements virtio.Device.
func (d *Device) Activate(a virtio.Activation) error {
	for i, q := range a.Queues {
		if q.Queue == nil {
			return fmt.Errorf("vsock: activate: queue %d is not enabled: %w", i, queue.ErrGuest)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active = newSession(d, a)
	d.options.Host.use(d.active)
	return nil
}

// Pause implements virtio.Device.
func (d *Device) Pause() {
	if s := d.session(); s != nil {
		s.pause()
	}
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	if s := d.session(); s != nil {
		s.resume()
	}
}

// Reset implements virtio.Device. Every connection ends.
func (d *Device) Reset() {
	d.mu.Lock()
	s := d.active
	d.active, d.lost, d.nextPort = nil, 0, firstHostPort
	d.mu.Unlock()
	if s != nil {
		d.options.Host.use(nil)
		s.close()
	}
}

func (d *Device) session() *session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.active
}
