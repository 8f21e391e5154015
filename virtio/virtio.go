// Package virtio is what every virtio device and every transport share: the
// Device interface between them, feature bits, and the worker that serves a
// queue off the vCPU thread.
//
// A device never sees a register; a transport never looks into a queue. Each
// device lives in a folder of its own with the same files: device.go (queues
// and requests), config.go (configuration space), state.go (save and
// validated restore), metrics.go, conformance_test.go (package devicetest),
// device_test.go, fuzz_test.go.
package virtio

import (
	"errors"

	"thaw/internal/guestmem"
	"thaw/virtio/queue"
)

// DeviceID is a device type (virtio 1.3 §5).
type DeviceID uint32

// Device types in use.
const (
	NetID     DeviceID = 1
	BlockID   DeviceID = 2
	RNGID     DeviceID = 4
	BalloonID DeviceID = 5
	VsockID   DeviceID = 19
)

// Feature bits that do not belong to a device (virtio 1.3 §6). The transport
// offers them for every device.
const (
	FeatureIndirect   = 1 << 28 // VIRTIO_F_INDIRECT_DESC
	FeatureEventIndex = 1 << 29 // VIRTIO_F_EVENT_IDX
	FeatureVersion1   = 1 << 32 // VIRTIO_F_VERSION_1
)

// ErrState is wrapped by errors about a saved state that cannot be restored.
var ErrState = errors.New("saved device state is not valid")

// Device is one virtio device. The life of a device:
//
//	   ┌────────────── Activate, paused ────────────┐
//	   │      Activate                 Pause        ▼
//	inactive ──────────▶ active ────────────────▶ paused
//	   ▲                   │ ▲                     │ │
//	   └───── Reset ───────┘ └────── Resume ───────┘ │
//	   └───────────────────── Reset ─────────────────┘
//
// Methods are called by one goroutine at a time, except the configuration
// accessors, which may be called at any time. Guest memory is touched only
// while active.
type Device interface {
	// ID is the device type.
	ID() DeviceID
	// Features are the device's own feature bits that are offered.
	Features() uint64
	// QueueSizes has the largest size of each queue.
	QueueSizes() []uint16
	// Config is the device's configuration space (virtio 1.3 §2.5). The
	// transport serves the guest's reads from it.
	Config() []byte
	// WriteConfig is called for a write of the guest's to p bytes at offset;
	// it may be ignored. From the guest: any offset, any length up to 8.
	WriteConfig(offset uint32, p []byte)
	// Activate starts the device on the queues that the driver set up, or makes
	// it paused when the activation says so. On an error the device stays
	// inactive, and the driver is told to reset it.
	Activate(Activation) error
	// Pause returns when no worker touches guest memory and every request
	// taken from a queue is answered; Resume goes on. Both do nothing when
	// inactive.
	Pause()
	Resume()
	// Reset stops the workers, returns when none touches guest memory, and
	// leaves the device as new. Of a paused device it leaves guest memory as it
	// is.
	Reset()
}

// Activation is what a device gets when the driver is ready.
type Activation struct {
	Memory    *guestmem.Memory
	Features  uint64 // acknowledged by the driver: a subset of those offered
	Queues    []Queue
	Interrupt Interrupt
	// Paused makes the device start as if Pause had been called: until Resume
	// it neither touches guest memory nor raises an interrupt.
	Paused bool
}

// Queue is a virtqueue with the event that its kick signals. The ring is nil
// where the driver did not enable the queue.
type Queue struct {
	*queue.Queue
	Kick *Kick
}

// Interrupt is how a device reaches its driver. Methods may be called from
// any goroutine.
type Interrupt interface {
	// Used tells the driver to look at its queues.
	Used()
	// ConfigChanged tells the driver to read the configuration space anew.
	ConfigChanged()
	// NeedsReset says that the device cannot go on because of err: the
	// driver broke the rules (DEVICE_NEEDS_RESET, virtio 1.3 §2.1.1).
	NeedsReset(err error)
}
