package vsock

import (
	"encoding/binary"
	"fmt"

	"thaw/virtio"
	"thaw/virtio/queue"
)

var errShortEvent = fmt.Errorf("vsock: driver's buffer is shorter than an event: %w", queue.ErrGuest)

// An event is a 32-bit number, of which one is defined (virtio 1.3 §5.10.6.7).
const (
	eventSize           = 4
	eventTransportReset = 0
)

// resetEvent serves the event queue until a restored guest knows that its
// connections are gone:
//
//	       a buffer: send the event          one more buffer than before
//	owed ────────────────────────────▶ sent ─────────────────────────────▶ taken
//
// The driver gives the buffer back when it has handled the event. Nothing may be
// connected before: the driver resets every connection that it knows then.
type resetEvent struct {
	queue     *queue.Queue
	interrupt virtio.Interrupt
	taken     chan struct{} // closed when that is so
	chain     queue.Chain
	phase     eventPhase
	offered   uint16 // the driver's index when the event was sent
}

type eventPhase int

const (
	eventOwed eventPhase = iota
	eventSent
	eventTaken
)

// Serve implements virtio.Handler.
func (e *resetEvent) Serve() (worked bool, err error) {
	switch {
	case !e.Waiting():
		return false, nil
	case e.phase == eventSent:
		e.phase = eventTaken
		close(e.taken)
		return true, nil
	}
	ok, err := e.queue.Pop(&e.chain)
	if !ok {
		return false, err
	}
	var event [eventSize]byte
	binary.LittleEndian.PutUint32(event[:], eventTransportReset)
	w := e.chain.Writer()
	if _, err := w.Write(event[:]); err != nil {
		return true, errShortEvent
	}
	e.phase, e.offered = eventSent, e.queue.Offered()
	e.queue.Push(&e.chain, eventSize)
	if e.queue.Publish() {
		e.interrupt.Used()
	}
	return true, nil
}

// Waiting implements virtio.Handler.
func (e *resetEvent) Waiting() bool {
	switch e.phase {
	case eventOwed:
		return e.queue.Available()
	case eventSent:
		return e.queue.Offered() != e.offered
	default:
		return false
	}
}

// Enable implements virtio.Handler.
func (e *resetEvent) Enable() bool {
	switch e.phase {
	case eventOwed:
		return e.queue.EnableNotify()
	case eventSent:
		return e.queue.EnableNotifyAt(e.offered)
	default:
		return false
	}
}

// Disable implements virtio.Handler.
func (e *resetEvent) Disable() { e.queue.DisableNotify() }
