package rng

import "sync/atomic"

// Metrics counts since the device was made, or since the snapshot it was
// restored from began to count.
type Metrics struct {
	Requests  atomic.Uint64
	Bytes     atomic.Uint64
	Throttled atomic.Uint64 // times that the bucket was found empty
}

// Metrics returns the counters.
func (d *Device) Metrics() *Metrics { return &d.metrics }

// Counters is a copy of Metrics as it is saved.
type Counters struct {
	Requests  uint64 `cbor:"requests"`
	Bytes     uint64 `cbor:"bytes"`
	Throttled uint64 `cbor:"throttled"`
}

// Counters reads all counters; not at one instant, when the device runs.
func (m *Metrics) Counters() Counters {
	return Counters{
		Requests: m.Requests.Load(), Bytes: m.Bytes.Load(), Throttled: m.Throttled.Load(),
	}
}

// restore sets all counters.
func (m *Metrics) restore(c Counters) {
	m.Requests.Store(c.Requests)
	m.Bytes.Store(c.Bytes)
	m.Throttled.Store(c.Throttled)
}
