package vsock

import "sync/atomic"

// Metrics counts what a device did since it was made. None of it is saved: it is
// about connections, which a snapshot does not keep either.
type Metrics struct {
	Opened    atomic.Uint64 // connections, of either side
	Refused   atomic.Uint64 // connections that did not come about
	Reset     atomic.Uint64 // connections ended by a reset from here
	FromGuest atomic.Uint64 // payload bytes
	ToGuest   atomic.Uint64
	Invalid   atomic.Uint64 // packets that were ignored
}
