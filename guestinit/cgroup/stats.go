package cgroup

import (
	"fmt"
	"os"
	"time"
)

// Stats are the kernel's counters of a group. Values whose controller is
// missing are 0.
type Stats struct {
	CPU, CPUUser, CPUSystem time.Duration
	MemoryPeak              int64 // bytes
	OOMKills                int64 // processes killed for memory.max
	PidsPeak                int64
	PidsRefused             int64 // forks refused by pids.max
}

// Now is what groups hold at the moment.
type Now struct {
	MemoryBytes int64
	Pids        int64
}

// Now reads what all groups together hold.
func (m *Manager) Now() Now {
	read := func(controller, name string) int64 {
		if !m.has(controller) {
			return 0
		}
		raw, err := readAt(m.dir, name)
		if err != nil {
			return 0
		}
		return number(raw)
	}
	return Now{MemoryBytes: read("memory", "memory.current"), Pids: read("pids", "pids.current")}
}

// readStats reads dir's counters; has tells which controllers to ask.
func readStats(dir *os.File, has func(string) bool) (Stats, error) {
	var s Stats
	raw, err := readAt(dir, "cpu.stat") // there without the cpu controller too
	if err != nil {
		return s, fmt.Errorf("cgroup: read cpu time: %w", err)
	}
	s.CPU = time.Duration(field(raw, "usage_usec")) * time.Microsecond
	s.CPUUser = time.Duration(field(raw, "user_usec")) * time.Microsecond
	s.CPUSystem = time.Duration(field(raw, "system_usec")) * time.Microsecond

	// Files that an older kernel lacks (pids.peak, memory.peak) count as 0.
	read := func(name string) string {
		raw, err := readAt(dir, name)
		if err != nil {
			return ""
		}
		return raw
	}
	if has("memory") {
		s.MemoryPeak = number(read("memory.peak"))
		s.OOMKills = field(read("memory.events"), "oom_kill")
	}
	if has("pids") {
		s.PidsPeak = number(read("pids.peak"))
		s.PidsRefused = field(read("pids.events"), "max")
	}
	return s, nil
}
