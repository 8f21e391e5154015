package hugetext

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// mapping is a line of /proc/PID/maps.
type mapping struct {
	start, end uint64 // addresses
	offset     uint64 // in the file, of start
	access     string // r-xp, say
	device     string
	inode      uint64 // 0: no file
}

// block is a range of 2 MiB that a huge page could map.
type block struct {
	at     uint64 // address
	offset uint64 // in the file
	prot   int
	joined bool // not within one mapping: it has to be mapped first
}

// Bounds of what is looked at: an image's own programs run while its template is built, and
// may map what they like, also terabytes of a file with nothing in it.
const (
	maxMaps   = 1 << 20 // bytes of the list of mappings
	maxBlocks = 1024    // of a process: 2 GiB
)

// parse reads /proc/PID/maps.
func parse(text string) ([]mapping, error) {
	var all []mapping
	for line := range strings.Lines(text) {
		var m mapping
		if _, err := fmt.Sscanf(line, "%x-%x %s %x %s %d", &m.start, &m.end, &m.access, &m.offset, &m.device, &m.inode); err != nil {
			return nil, fmt.Errorf("mapping %q: %w", line, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// constant says whether it is private and of a file, and nobody writes to it now: whether
// somebody did, the page map tells.
func (m mapping) constant() bool {
	return m.inode != 0 && (m.access == "r--p" || m.access == "r-xp")
}

func (m mapping) prot() int {
	if m.access[2] == 'x' {
		return unix.PROT_READ | unix.PROT_EXEC
	}
	return unix.PROT_READ
}

func (m mapping) sameFile(n mapping) bool { return m.device == n.device && m.inode == n.inode }

// blocks returns the blocks that mappings of code and constants cover. With join also
// those that several together do, which follow each other in memory as in their file, and
// the gap behind the last, if more of the file is mapped behind that. Only the first
// maxBlocks are returned.
func blocks(maps []mapping, join bool) []block {
	var all []block
	for i, first := range maps {
		if !first.constant() {
			continue
		}
		run := maps[i : i+1]
		if join {
			if i > 0 && maps[i-1].constant() && maps[i-1].precedes(first) {
				continue // it is in the run before
			}
			for n := i + 1; n < len(maps) && maps[n].constant() && maps[n-1].precedes(maps[n]); n++ {
				run = maps[i : n+1]
			}
		}
		last := run[len(run)-1]
		end := last.end
		if next := i + len(run); join && next < len(maps) && maps[next].sameFile(last) {
			end = maps[next].start
		}
		if (first.start-first.offset)%hugeSize != 0 {
			continue
		}
		for at := (first.start + hugeSize - 1) / hugeSize * hugeSize; at+hugeSize <= end; at += hugeSize {
			b := block{at: at, offset: first.offset + at - first.start, joined: true}
			for _, m := range run {
				if m.start < at+hugeSize && m.end > at {
					b.prot |= m.prot()
					b.joined = b.joined && (m.start > at || m.end < at+hugeSize)
				}
			}
			if all = append(all, b); len(all) == maxBlocks {
				return all
			}
		}
	}
	return all
}

// precedes says whether n begins where m ends, in memory and in their file.
func (m mapping) precedes(n mapping) bool {
	return m.sameFile(n) && n.start == m.end && n.start-n.offset == m.start-m.offset
}
