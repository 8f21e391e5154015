package cgroup

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// StarveInterval is how often [Starve.Look] should be called.
const StarveInterval = time.Second

// Starve sees that a group starves at its memory limit: that it needs more
// than it may have, and the kernel does not kill it.
//
// The kernel kills for memory.max when it can reclaim nothing. But a page of
// cache can always be reclaimed, even one that the program runs from and asks
// for again in its next instruction. A program that grows in small steps thus
// lives on with a few pages of cache that go round, thousands of times a
// second: hardly a step forward, and never an end. Two signs tell such groups
// from those that read and write much and use their limit for a cache, as they
// should:
//
//	bare     next to nothing of the group's memory is cache, and that little is
//	         read back from the disk many times over in each second
//	stalled  less than half is cache, and most of the time every process of
//	         the group waits for memory (PSI)
//
// Measured at 64 MiB, in one second: a stuck Python program has 120 KiB of
// cache, read back 500 to 4 000 times, and stalls for 5 to 50 % of the time;
// one that touches 25 MiB of files in each step has 27 % of cache and stalls
// for 50 to 80 %. Programs that read a large file again and again have 95 % of
// cache, read back one to four times, and stall for 3 to 32 %.
type Starve struct {
	g             *Group
	last          hunger
	bare, stalled int // looks in a row that saw the sign
}

// What the signs are, and for how many looks in a row.
const (
	bareShare    = 16       // of memory, one part or less is cache
	bareTurnover = 16       // times a second that the cache is read back
	bareCache    = 64 << 10 // bytes; a smaller cache counts as this much
	bareLooks    = 2

	stalledShare = 2 // of memory, one part or less is cache
	stalledTime  = 2 // of time, one part or more
	stalledLooks = 5
)

// hunger is what one look saw.
type hunger struct {
	at       time.Time
	memory   int64         // bytes
	cache    int64         // bytes of it that can be reclaimed
	refaults int64         // pages read back soon after they were reclaimed, ever
	stalled  time.Duration // of every process at once, ever
}

// Starve returns a watcher of the group.
func (g *Group) Starve() *Starve { return &Starve{g: g} }

// Look tells what is wrong once the group has starved for some looks, else "".
// It tells nothing about groups without the memory controller.
func (s *Starve) Look() string {
	if !s.g.m.has("memory") {
		return ""
	}
	now, err := readHunger(s.g.dir)
	if err != nil {
		return "" // the group is going
	}
	now.at = time.Now()
	return s.judge(now)
}

func (s *Starve) judge(now hunger) string {
	last := s.last
	s.last = now
	if last.at.IsZero() {
		return ""
	}
	seconds := now.at.Sub(last.at).Seconds()
	readBack := float64(now.refaults-last.refaults) * float64(os.Getpagesize())
	waited := (now.stalled - last.stalled).Seconds()

	count(&s.bare, now.cache <= now.memory/bareShare && readBack >= bareTurnover*seconds*float64(max(now.cache, bareCache)))
	count(&s.stalled, now.cache <= now.memory/stalledShare && waited >= seconds/stalledTime)
	if s.bare < bareLooks && s.stalled < stalledLooks {
		return ""
	}
	return fmt.Sprintf("starved at the memory limit: %d of %d KiB are cache, %.0f KiB read back and %.0f %% of the time stalled in %.1f s",
		now.cache>>10, now.memory>>10, readBack/1024, 100*waited/seconds, seconds)
}

// count counts signs in a row.
func count(n *int, sign bool) {
	if sign {
		*n++
	} else {
		*n = 0
	}
}

// readHunger reads what [Starve] judges by. A kernel without PSI never tells
// of stalls.
func readHunger(dir *os.File) (hunger, error) {
	var h hunger
	current, err := readAt(dir, "memory.current")
	if err != nil {
		return h, fmt.Errorf("cgroup: read memory: %w", err)
	}
	stat, err := readAt(dir, "memory.stat")
	if err != nil {
		return h, fmt.Errorf("cgroup: read memory: %w", err)
	}
	h.memory = number(current)
	// tmpfs files count as file, and without swap cannot go.
	h.cache = max(field(stat, "file")-field(stat, "shmem"), 0) + field(stat, "slab_reclaimable")
	h.refaults = field(stat, "workingset_refault_file")
	if pressure, err := readAt(dir, "memory.pressure"); err == nil {
		h.stalled = stallTime(pressure)
	}
	return h, nil
}

// stallTime returns the total of the line "full avg10=… avg60=… avg300=… total=N",
// in microseconds (Documentation/accounting/psi.rst).
func stallTime(pressure string) time.Duration {
	for line := range strings.Lines(pressure) {
		if _, total, ok := strings.Cut(line, " total="); ok && strings.HasPrefix(line, "full ") {
			return time.Duration(number(total)) * time.Microsecond
		}
	}
	return 0
}
