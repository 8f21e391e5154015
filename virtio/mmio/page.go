package mmio

import "thaw/internal/guestmem"

// The register page. Preconditions of all here: mu is held, or nobody else has
// the transport yet.

func (t *Transport) set(offset int, v uint32) { guestmem.Store32(t.page, offset, v) }

func (t *Transport) status() uint32 { return guestmem.Load32(t.page, regStatus) }

// showSelected updates the registers that depend on a selector.
func (t *Transport) showSelected() {
	var features uint32
	if t.deviceSel < 2 {
		features = uint32(t.offered >> (32 * t.deviceSel))
	}
	t.set(regDeviceFeatures, features)
	var max, ready uint32
	if t.queueSel < uint32(len(t.queues)) {
		q := t.queues[t.queueSel]
		max = uint32(q.max)
		if q.ready {
			ready = 1
		}
	}
	t.set(regQueueSizeMax, max)
	t.set(regQueueReady, ready)
}

func (t *Transport) showInterrupt() { t.set(regInterruptStatus, t.interruptBit) }

func (t *Transport) copyConfig() {
	copy(t.page[regConfig:], t.args.Device.Config())
}
