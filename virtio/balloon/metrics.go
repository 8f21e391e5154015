package balloon

import "sync/atomic"

// Metrics counts since the device was made, or since the snapshot it was
// restored from began to count.
type Metrics struct {
	Inflated      atomic.Uint64 // pages put into the balloon
	Deflated      atomic.Uint64 // pages that the guest says it took out
	ReportedBytes atomic.Uint64 // free memory reported and given back
	Reclaims      atomic.Uint64 // calls for runs of pages, of both kinds
	Invalid       atomic.Uint64 // pages or ranges that were not RAM: ignored
	Failed        atomic.Uint64 // runs that the host did not take back
}

// Counters is a copy of Metrics as it is saved.
type Counters struct {
	Inflated      uint64 `cbor:"inflated"`
	Deflated      uint64 `cbor:"deflated"`
	ReportedBytes uint64 `cbor:"reported_bytes"`
	Reclaims      uint64 `cbor:"reclaims"`
	Invalid       uint64 `cbor:"invalid"`
	Failed        uint64 `cbor:"failed"`
}

// Counters reads all counters; not at one instant, when the device runs.
func (m *Metrics) Counters() Counters {
	return Counters{
		Inflated: m.Inflated.Load(), Deflated: m.Deflated.Load(), ReportedBytes: m.ReportedBytes.Load(),
		Reclaims: m.Reclaims.Load(), Invalid: m.Invalid.Load(), Failed: m.Failed.Load(),
	}
}

// restore sets all counters.
func (m *Metrics) restore(c Counters) {
	m.Inflated.Store(c.Inflated)
	m.Deflated.Store(c.Deflated)
	m.ReportedBytes.Store(c.ReportedBytes)
	m.Reclaims.Store(c.Reclaims)
	m.Invalid.Store(c.Invalid)
	m.Failed.Store(c.Failed)
}
