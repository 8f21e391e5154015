package net

import "sync/atomic"

// Metrics counts since the device was made, or since the snapshot it was
// restored from began to count. Bytes are of frames, without headers.
type Metrics struct {
	Send    SendMetrics
	Receive ReceiveMetrics
}

// SendMetrics counts frames from the guest.
type SendMetrics struct {
	Frames    atomic.Uint64 // taken by the tap
	Bytes     atomic.Uint64
	Runts     atomic.Uint64 // dropped: no whole Ethernet header
	Oversize  atomic.Uint64 // dropped: longer than any frame may be
	Malformed atomic.Uint64 // dropped: the header contradicts the frame
	Full      atomic.Uint64 // dropped: the tap had no room
	Refused   atomic.Uint64 // dropped: the host's kernel said no
}

// ReceiveMetrics counts frames to the guest.
type ReceiveMetrics struct {
	Frames   atomic.Uint64 // put into the guest's buffers
	Bytes    atomic.Uint64
	Split    atomic.Uint64 // of these, those that had to wait for more buffers
	Starved  atomic.Uint64 // times that the guest had no buffers
	Oversize atomic.Uint64 // dropped: did not fit into the buffers
	Dropped  atomic.Uint64 // dropped: half delivered when the device paused
	Stale    atomic.Uint64 // dropped: came before the device was restored
}

// Counters is a copy of Metrics as it is saved.
type Counters struct {
	SendFrames      uint64 `cbor:"send_frames"`
	SendBytes       uint64 `cbor:"send_bytes"`
	SendRunts       uint64 `cbor:"send_runts"`
	SendOversize    uint64 `cbor:"send_oversize"`
	SendMalformed   uint64 `cbor:"send_malformed"`
	SendFull        uint64 `cbor:"send_full"`
	SendRefused     uint64 `cbor:"send_refused"`
	ReceiveFrames   uint64 `cbor:"receive_frames"`
	ReceiveBytes    uint64 `cbor:"receive_bytes"`
	ReceiveSplit    uint64 `cbor:"receive_split"`
	ReceiveStarved  uint64 `cbor:"receive_starved"`
	ReceiveOversize uint64 `cbor:"receive_oversize"`
	ReceiveDropped  uint64 `cbor:"receive_dropped"`
	ReceiveStale    uint64 `cbor:"receive_stale"`
}

// Counters reads all counters; not at one instant, when the device runs.
func (m *Metrics) Counters() Counters {
	s, r := &m.Send, &m.Receive
	return Counters{
		SendFrames: s.Frames.Load(), SendBytes: s.Bytes.Load(),
		SendRunts: s.Runts.Load(), SendOversize: s.Oversize.Load(), SendMalformed: s.Malformed.Load(),
		SendFull: s.Full.Load(), SendRefused: s.Refused.Load(),
		ReceiveFrames: r.Frames.Load(), ReceiveBytes: r.Bytes.Load(),
		ReceiveSplit: r.Split.Load(), ReceiveStarved: r.Starved.Load(),
		ReceiveOversize: r.Oversize.Load(), ReceiveDropped: r.Dropped.Load(), ReceiveStale: r.Stale.Load(),
	}
}

// restore sets all counters.
func (m *Metrics) restore(c Counters) {
	s, r := &m.Send, &m.Receive
	s.Frames.Store(c.SendFrames)
	s.Bytes.Store(c.SendBytes)
	s.Runts.Store(c.SendRunts)
	s.Oversize.Store(c.SendOversize)
	s.Malformed.Store(c.SendMalformed)
	s.Full.Store(c.SendFull)
	s.Refused.Store(c.SendRefused)
	r.Frames.Store(c.ReceiveFrames)
	r.Bytes.Store(c.ReceiveBytes)
	r.Split.Store(c.ReceiveSplit)
	r.Starved.Store(c.ReceiveStarved)
	r.Oversize.Store(c.ReceiveOversize)
	r.Dropped.Store(c.ReceiveDropped)
	r.Stale.Store(c.ReceiveStale)
}
