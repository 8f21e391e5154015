package block

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Metrics counts since the device was made, or since the snapshot it was
// restored from began to count.
type Metrics struct {
	Reads        atomic.Uint64 // requests, failed ones included
	Writes       atomic.Uint64
	Flushes      atomic.Uint64
	Discards     atomic.Uint64
	WriteZeroes  atomic.Uint64
	GetIDs       atomic.Uint64
	Unsupported  atomic.Uint64
	ReadBytes    atomic.Uint64 // of requests that succeeded
	WrittenBytes atomic.Uint64
	Pooled       atomic.Uint64 // requests that left the worker; the others ran on it
	Refused      atomic.Uint64 // requests that were wrong: range, length, read only
	HostErrors   atomic.Uint64 // failures of the host's storage
	NoSpace      atomic.Uint64 // those of them that were for lack of space
}

// hostError counts a failure of the host's storage.
func (m *Metrics) hostError(err error) {
	m.HostErrors.Add(1)
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		m.NoSpace.Add(1)
	}
}

// Counters is a copy of Metrics as it is saved.
type Counters struct {
	Reads        uint64 `cbor:"reads"`
	Writes       uint64 `cbor:"writes"`
	Flushes      uint64 `cbor:"flushes"`
	Discards     uint64 `cbor:"discards"`
	WriteZeroes  uint64 `cbor:"write_zeroes"`
	GetIDs       uint64 `cbor:"get_ids"`
	Unsupported  uint64 `cbor:"unsupported"`
	ReadBytes    uint64 `cbor:"read_bytes"`
	WrittenBytes uint64 `cbor:"written_bytes"`
	Pooled       uint64 `cbor:"pooled"`
	Refused      uint64 `cbor:"refused"`
	HostErrors   uint64 `cbor:"host_errors"`
	NoSpace      uint64 `cbor:"no_space"`
}

// Counters reads all counters; not at one instant, when the device runs.
func (m *Metrics) Counters() Counters {
	return Counters{
		Reads: m.Reads.Load(), Writes: m.Writes.Load(), Flushes: m.Flushes.Load(), Discards: m.Discards.Load(),
		WriteZeroes: m.WriteZeroes.Load(), GetIDs: m.GetIDs.Load(), Unsupported: m.Unsupported.Load(),
		ReadBytes: m.ReadBytes.Load(), WrittenBytes: m.WrittenBytes.Load(), Pooled: m.Pooled.Load(),
		Refused: m.Refused.Load(), HostErrors: m.HostErrors.Load(), NoSpace: m.NoSpace.Load(),
	}
}

// restore sets all counters.
func (m *Metrics) restore(c Counters) {
	m.Reads.Store(c.Reads)
	m.Writes.Store(c.Writes)
	m.Flushes.Store(c.Flushes)
	m.Discards.Store(c.Discards)
	m.WriteZeroes.Store(c.WriteZeroes)
	m.GetIDs.Store(c.GetIDs)
	m.Unsupported.Store(c.Unsupported)
	m.ReadBytes.Store(c.ReadBytes)
	m.WrittenBytes.Store(c.WrittenBytes)
	m.Pooled.Store(c.Pooled)
	m.Refused.Store(c.Refused)
	m.HostErrors.Store(c.HostErrors)
	m.NoSpace.Store(c.NoSpace)
}
