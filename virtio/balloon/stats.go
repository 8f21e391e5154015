package balloon

import (
	"encoding/binary"
	"fmt"
	"sync"
)

// Tag names one of the guest's memory statistics, virtio 1.3 §5.5.6.4.
type Tag uint16

// The statistics. Memory is in bytes, the others are counts since boot.
const (
	SwapIn         Tag = iota // VIRTIO_BALLOON_S_SWAP_IN, bytes
	SwapOut                   // VIRTIO_BALLOON_S_SWAP_OUT, bytes
	MajorFaults               // VIRTIO_BALLOON_S_MAJFLT
	MinorFaults               // VIRTIO_BALLOON_S_MINFLT
	FreeMemory                // VIRTIO_BALLOON_S_MEMFREE
	TotalMemory               // VIRTIO_BALLOON_S_MEMTOT
	Available                 // VIRTIO_BALLOON_S_AVAIL
	Caches                    // VIRTIO_BALLOON_S_CACHES
	HugetlbAllocs             // VIRTIO_BALLOON_S_HTLB_PGALLOC
	HugetlbFails              // VIRTIO_BALLOON_S_HTLB_PGFAIL
	OOMKills                  // VIRTIO_BALLOON_S_OOM_KILL
	AllocStalls               // VIRTIO_BALLOON_S_ALLOC_STALL
	AsyncScans                // VIRTIO_BALLOON_S_ASYNC_SCAN
	DirectScans               // VIRTIO_BALLOON_S_DIRECT_SCAN
	AsyncReclaims             // VIRTIO_BALLOON_S_ASYNC_RECLAIM
	DirectReclaims            // VIRTIO_BALLOON_S_DIRECT_RECLAIM
	Tags                      // how many there are
)

var tagNames = [Tags]string{
	"swap_in", "swap_out", "major_faults", "minor_faults", "free_memory", "total_memory", "available", "caches",
	"hugetlb_allocs", "hugetlb_fails", "oom_kills", "alloc_stalls", "async_scans", "direct_scans", "async_reclaims",
	"direct_reclaims",
}

// String is the name of a statistic: lower case, words joined by underscores.
func (t Tag) String() string {
	if t >= Tags {
		return fmt.Sprintf("tag %d", uint16(t))
	}
	return tagNames[t]
}

// Stats is one answer of the driver. Its numbers are the guest's word.
type Stats struct {
	values [Tags]uint64
	known  uint32 // bit t: the answer had tag t
}

// Value returns one statistic, and whether the driver gave it.
func (s *Stats) Value(t Tag) (uint64, bool) {
	if t >= Tags {
		return 0, false
	}
	return s.values[t], s.known&(1<<t) != 0
}

// statSize is the length of a packed struct virtio_balloon_stat: a 16-bit tag
// and a 64-bit value. maxStats bounds what is read of a buffer.
const (
	statSize = 10
	maxStats = 64
)

// parseStats reads a buffer of statistics. From the guest: unknown tags are
// skipped (§5.5.6.3.2), the last of two equal tags counts, an incomplete one
// at the end does not.
func parseStats(p []byte) Stats {
	var s Stats
	for ; len(p) >= statSize; p = p[statSize:] {
		tag := Tag(binary.LittleEndian.Uint16(p))
		if tag < Tags {
			s.values[tag] = binary.LittleEndian.Uint64(p[2:])
			s.known |= 1 << tag
		}
	}
	return s
}

// statistician serves the statistics queue (virtio 1.3 §5.5.6.3). The driver
// makes one buffer available and fills it anew whenever it gets it back:
//
//	       ask                  a buffer: give it back             the next buffer: read it
//	idle ───────▶ asked ──────────────────────────────▶ sent ───────────────────────────────▶ idle
//
// The buffer stays in the available ring when idle, so that nothing is out
// of the queue while the device is paused, and nothing need be saved: after
// a restore in any state, the next request goes the same way.
type statistician struct {
	ring
	buffer [maxStats * statSize]byte

	mu     sync.Mutex
	phase  phase         // protected by mu
	latest Stats         // protected by mu
	fresh  chan struct{} // protected by mu; closed when latest is the answer
}

type phase int

const (
	idle phase = iota
	asked
	sent
)

// ask requests statistics, if no request is on, and returns what is closed
// when there is an answer. The worker must be kicked then.
func (h *statistician) ask() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == idle {
		h.phase = asked
		h.fresh = make(chan struct{})
	}
	return h.fresh
}

// answered returns the last answer.
func (h *statistician) answered() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.latest
}

// Serve does one step.
func (h *statistician) Serve() (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == idle {
		return false, nil
	}
	ok, err := h.queue.Pop(&h.chain)
	if !ok {
		return false, err
	}
	if h.phase == asked {
		h.answer()
		h.phase = sent
		return true, nil
	}
	c := h.chain.Reader()
	n, _ := c.Read(h.buffer[:]) // an empty buffer is an answer without numbers
	h.queue.Unpop(1)
	h.latest = parseStats(h.buffer[:n])
	h.phase = idle
	close(h.fresh)
	return true, nil
}

// Waiting is false when idle: the buffer that waits in the ring is no work.
func (h *statistician) Waiting() bool { return h.busy() && h.ring.Waiting() }

// Enable asks for a kick.
func (h *statistician) Enable() bool { return h.ring.Enable() && h.busy() }

func (h *statistician) busy() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase != idle
}
