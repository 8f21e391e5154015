// Package block is the virtio block device (virtio 1.3 §5.2) on a disk of
// layered files.
//
// One worker takes requests from the queue, off the vCPU thread. What can be
// answered from memory is answered there, at once and a batch at a time; what
// would wait for the host's storage goes to a pool of goroutines, so that
// cold reads run side by side and hold nobody up:
//
//	            ┌── read from page cache, write, discard ──────────┐
//	queue ──▶ worker                                              used ring
//	            └── read that would block, flush ──▶ pool ─────────┘
//
// Writes stay on the worker, in the order of the queue: that makes copying up
// parts of blocks and claiming blocks free of locks, and a flush covers all
// writes before it.
package block

import (
	"errors"
	"fmt"
	"os"

	"thaw/virtio"
	"thaw/virtio/block/disk"
	"thaw/virtio/queue"
)

// Options says what a device is made of.
type Options struct {
	// ID is what the guest reads as the disk's serial: at most 20 bytes.
	ID string
	// Layers are the disk's files, bottom first; see package disk. They stay
	// the caller's.
	Layers []*os.File
	// ReadOnly refuses every write; otherwise the last layer is written.
	ReadOnly bool
	// Previous is the device that a restored one replaces, reset and not used any
	// more; may be nil. What the two have in common is taken over: a read-only disk
	// as it is, a writable one that goes back to its last Freeze for the cost of
	// what it wrote since. The files of Layers are used all the same.
	Previous *Device
}

// ErrID is wrapped when a device id does not fit.
var ErrID = errors.New("id is longer than 20 bytes")

// Device is a block device.
type Device struct {
	disk    *disk.Disk
	name    string
	config  [configLen]byte
	metrics Metrics
	server  *server // nil when inactive
}

var _ virtio.Device = (*Device)(nil)

// New returns an inactive device. Errors about the files wrap those of
// package disk: disk.ErrSize, disk.ErrLayers.
func New(options Options) (*Device, error) {
	d, err := disk.Open(options.Layers, options.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("block: open disk %q: %w", options.ID, err)
	}
	return newDevice(options.ID, d)
}

func newDevice(id string, d *disk.Disk) (*Device, error) {
	if len(id) > idLen {
		return nil, fmt.Errorf("block: name disk %q: %w", id, ErrID)
	}
	return &Device{disk: d, name: id, config: encodeConfig(d)}, nil
}

// ID implements virtio.Device.
func (d *Device) ID() virtio.DeviceID { return virtio.BlockID }

// Features implements virtio.Device.
func (d *Device) Features() uint64 { return deviceFeatures(d.disk.ReadOnly()) }

// QueueSizes implements virtio.Device.
func (d *Device) QueueSizes() []uint16 { return []uint16{queueSize} }

// Config implements virtio.Device.
func (d *Device) Config() []byte { return d.config[:] }

// WriteConfig implements virtio.Device. The only field that a driver might
// write, writeback, is not offered.
func (d *Device) WriteConfig(uint32, []byte) {}

// ReadOnly says whether writes are refused.
func (d *Device) ReadOnly() bool { return d.disk.ReadOnly() }

// Metrics returns the counters.
func (d *Device) Metrics() *Metrics { return &d.metrics }

// Activate implements virtio.Device.
func (d *Device) Activate(a virtio.Activation) error {
	if len(a.Queues) != 1 || a.Queues[0].Queue == nil {
		return fmt.Errorf("block: activate: the request queue is not set up: %w", queue.ErrGuest)
	}
	d.server = newServer(d, a)
	d.server.worker = a.StartPolling(0, d.server, virtio.Always)
	return nil
}

// Pause implements virtio.Device.
func (d *Device) Pause() {
	if d.server != nil {
		d.server.pause()
	}
}

// Resume implements virtio.Device.
func (d *Device) Resume() {
	if d.server != nil {
		d.server.worker.Resume()
	}
}

// Reset implements virtio.Device.
func (d *Device) Reset() {
	if d.server != nil {
		d.server.stop()
		d.server = nil
	}
}

// Freeze puts a new, empty top layer on the disk, which makes all that was
// written so far immutable. A State after it goes with the layers under top; a
// State from before goes with one layer less. On an error the disk is as it was.
// Preconditions: paused or inactive.
func (d *Device) Freeze(top *os.File) error { return d.disk.Freeze(top) }

// Drop undoes all writes since the last Freeze. Preconditions: paused or
// inactive.
func (d *Device) Drop() error { return d.disk.Drop() }

// Written is how many blocks of 4 KiB the top layer holds: what a checkpoint
// would have to keep. Preconditions: paused or inactive.
func (d *Device) Written() int { return d.disk.Written() }
