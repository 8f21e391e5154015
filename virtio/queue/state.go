package queue

import (
	"fmt"

	"thaw/internal/guestmem"
)

// State is all that is needed to go on with a queue in another process, given
// the same guest memory. It comes from a snapshot file: untrusted.
type State struct {
	Size       uint16 `cbor:"size"`
	Desc       uint64 `cbor:"desc"`
	Avail      uint64 `cbor:"avail"`
	Used       uint64 `cbor:"used"`
	EventIndex bool   `cbor:"event_index"`
	Indirect   bool   `cbor:"indirect"`
	Next       uint16 `cbor:"next"`
	Pushed     uint16 `cbor:"pushed"`
}

// State saves the queue. Preconditions: every popped chain was pushed and
// published.
func (q *Queue) State() State {
	return State{
		Size: q.cfg.Size, Desc: q.cfg.Desc, Avail: q.cfg.Avail, Used: q.cfg.Used,
		EventIndex: q.cfg.EventIndex, Indirect: q.cfg.Indirect,
		Next: q.next, Pushed: q.pushed,
	}
}

// Restore checks a saved state as it would a driver's configuration and
// returns the queue it describes.
func Restore(mem *guestmem.Memory, s State) (*Queue, error) {
	q, err := New(mem, Config{
		Size: s.Size, Desc: s.Desc, Avail: s.Avail, Used: s.Used,
		EventIndex: s.EventIndex, Indirect: s.Indirect,
	})
	if err != nil {
		return nil, err
	}
	if s.Next != s.Pushed {
		return nil, fmt.Errorf("queue: saved with %d chains in flight: %w", s.Next-s.Pushed, ErrGuest)
	}
	q.next, q.pushed, q.signalled = s.Next, s.Pushed, s.Pushed
	return q, nil
}
