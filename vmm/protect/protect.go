// Package protect is the synchronous form of write protection: the pages of a machine
// are protected, and another process answers the first write to each.
//
// It has to be another process. A thread of Go that waits for a protected page does not
// stop for the garbage collector, and a handler in the same process would wait with it.
//
//	thaw-vmm (Client)                 handler (Serve)
//	   │ begin + userfaultfd             │ has the VMM's memory to read, passed by the daemon
//	   │────────────────────────────────▶│ registers the machine's memory
//	   │                              ok │
//	   │◀────────────────────────────────│
//	   │ pages …, protect                │ protects them
//	   │────────────────────────────────▶│
//	   │                              ok │       guest writes ──fault──▶ lets go of the page
//	   │◀────────────────────────────────│
//	   │ pages …, stage + file           │ protects them
//	   │────────────────────────────────▶│
//	   │                              ok │ copies them to the file, one after the other;
//	   │◀────────────────────────────────│ guest writes ──fault──▶ copies that page first,
//	   │                          staged │                         lets go of it
//	   │◀────────────────────────────────│
//	   │ end                             │ closes the userfaultfd
//	   │────────────────────────────────▶│
//	   │                              ok │
//	   │◀────────────────────────────────│
//
// Only the handler keeps the userfaultfd. When it ends, however it does, the kernel takes
// all protection off and lets go of every thread that waits: the machine runs on, and what
// the VMM asks for next is an error.
//
// Which pages were written is read in the page map (package pagemap): they are those that
// are private and not protected. The handler keeps no list of them that could disagree.
package protect

import (
	"encoding/binary"
	"errors"
	"fmt"

	"thaw/internal/pagemap"
	"thaw/internal/uffd"
)

// ErrHandler is wrapped when the handler has refused something, or is gone.
var ErrHandler = errors.New("handler of write faults failed")

// Features are those of the kernel that a handler asks for.
const Features = uffd.WriteProtect | uffd.WriteProtectShmem | uffd.WriteProtectUnpopulated

// Operations, the first byte of a message of the VMM's.
const (
	opBegin   = 1 // start and length of the memory; with a userfaultfd
	opPages   = 2 // ranges of pages, in ascending order, to be added to the list
	opProtect = 3 // the pages listed
	opStage   = 4 // the pages listed; with a file
	opEnd     = 5 // of all protection
)

// Answers, the first byte of a message of the handler's.
const (
	answerOK     = 1
	answerStaged = 2
	answerError  = 3 // and a text
)

const (
	maxMessage = 32 << 10 // bytes
	rangeSize  = 8
	// rangesPerMessage fill a message.
	rangesPerMessage = (maxMessage - 1) / rangeSize
	// maxRanges is more than a machine's memory can have.
	maxRanges = 16 << 20
)

func appendRanges(b []byte, list []pagemap.Range) []byte {
	for _, r := range list {
		b = binary.LittleEndian.AppendUint32(b, r.First)
		b = binary.LittleEndian.AppendUint32(b, r.Count)
	}
	return b
}

// parseRanges appends the ranges in b, which must be ascending, within so many pages, and
// behind those of list.
func parseRanges(list []pagemap.Range, b []byte, pages uint64) ([]pagemap.Range, error) {
	if len(b)%rangeSize != 0 || len(list)+len(b)/rangeSize > maxRanges {
		return list, fmt.Errorf("protect: %d bytes of ranges after %d", len(b), len(list))
	}
	end := uint64(0)
	if n := len(list); n > 0 {
		end = uint64(list[n-1].First) + uint64(list[n-1].Count)
	}
	for ; len(b) > 0; b = b[rangeSize:] {
		r := pagemap.Range{First: binary.LittleEndian.Uint32(b), Count: binary.LittleEndian.Uint32(b[4:])}
		if r.Count == 0 || uint64(r.First) < end || uint64(r.First)+uint64(r.Count) > pages {
			return list, fmt.Errorf("protect: range of %d pages from %d on, after %d of %d", r.Count, r.First, end, pages)
		}
		end = uint64(r.First) + uint64(r.Count)
		list = append(list, r)
	}
	return list, nil
}
