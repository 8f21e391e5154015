package mmio

// Registers of virtio over MMIO, virtio 1.3 §4.2.2. This file is the only
// place that knows their offsets.
const (
	regMagic           = 0x000
	regVersion         = 0x004
	regDeviceID        = 0x008
	regVendorID        = 0x00c
	regDeviceFeatures  = 0x010
	regDeviceFeatSel   = 0x014
	regDriverFeatures  = 0x020
	regDriverFeatSel   = 0x024
	regQueueSel        = 0x030
	regQueueSizeMax    = 0x034
	regQueueSize       = 0x038
	regQueueReady      = 0x044
	regQueueNotify     = 0x050
	regInterruptStatus = 0x060
	regInterruptACK    = 0x064
	regStatus          = 0x070
	regQueueDescLow    = 0x080
	regQueueDescHigh   = 0x084
	regQueueDriverLow  = 0x090
	regQueueDriverHigh = 0x094
	regQueueDeviceLow  = 0x0a0
	regQueueDeviceHigh = 0x0a4
	regSHMLenLow       = 0x0b0
	regSHMLenHigh      = 0x0b4
	regSHMBaseLow      = 0x0b8
	regSHMBaseHigh     = 0x0bc
	regConfigGen       = 0x0fc
	regConfig          = 0x100
)

const (
	magic    = 0x74726976 // "virt"
	version  = 2
	vendorID = 0x77616874 // "thaw"
)

// Size is the length of one device's register window in bytes: a page, so
// that it can be a memory slot of its own.
const Size = 0x1000

// ConfigSize is how much configuration space a device can have, in bytes.
const ConfigSize = Size - regConfig

// Bits of the device status field, virtio 1.3 §2.1.
const (
	statusAcknowledge = 1
	statusDriver      = 2
	statusDriverOK    = 4
	statusFeaturesOK  = 8
	statusNeedsReset  = 64
	statusFailed      = 128
)

// Bits of the interrupt status, virtio 1.3 §4.2.2.
const (
	interruptUsed   = 1
	interruptConfig = 2
)

// NotifyOffset is where the driver writes the number of a queue to kick it:
// what an ioeventfd is registered for, with the number as its value.
const NotifyOffset = regQueueNotify

// AckOffset and AckUsed are the write that acknowledges an interrupt for used
// buffers and nothing else. The transport needs no word of it, so KVM may
// swallow it (see the package comment).
const (
	AckOffset = regInterruptACK
	AckUsed   = interruptUsed
)
