package block

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Metrics counts what a device did since it was made.
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

// all lists the counters in the order of the struct, for State.
func (m *Metrics) all() [13]*atomic.Uint64 {
	return [...]*atomic.Uint64{
		&m.Reads, &m.Writes, &m.Flushes, &m.Discards, &m.WriteZeroes, &m.GetIDs, &m.Unsupported,
		&m.ReadBytes, &m.WrittenBytes, &m.Pooled, &m.Refused, &m.HostErrors, &m.NoSpace,
	}
}
