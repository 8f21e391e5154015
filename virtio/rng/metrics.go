package rng

import "sync/atomic"

// Metrics counts what a device did since it was made.
type Metrics struct {
	Requests  atomic.Uint64
	Bytes     atomic.Uint64
	Throttled atomic.Uint64 // times that the bucket was found empty
}

// Metrics returns the counters.
func (d *Device) Metrics() *Metrics { return &d.metrics }
