package memimage

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
)

// dropAbove is from how many private pages on they are dropped instead of
// compared and copied back. Copying keeps the page tables hot, on which the
// guest's next step depends; dropping costs the same whatever the number is.
const dropAbove = 16 << 10

// PutBack tells what Rollback did, in pages.
type PutBack struct {
	Private, Copied, Restored int
	Dropped                   bool
	// Entries are words of special pages that are to be set yet.
	Entries []Entry
}

// Entry is a word of 8 bytes at an offset into the memory.
type Entry struct {
	Offset, Value uint64
}

// Rollback makes the image the content of mem again, over which an image with the
// same base was laid. private are the pages that are private now or, if exact, all
// that may differ. Pages that special says yes to, which may be nil, are left alone: what differs in them is
// returned as entries, or lost if all was dropped. Preconditions: nothing writes
// mem.
func (x *Image) Rollback(mem *guestmem.Memory, private []pagemap.Range, exact bool, special func(page uint32) bool) (PutBack, error) {
	if err := x.fits(mem); err != nil {
		return PutBack{}, err
	}
	n := PutBack{Private: pagemap.Pages(private)}
	host := mem.Host()
	if n.Private > dropAbove && !exact {
		for _, r := range private {
			if err := unix.Madvise(host[uint64(r.First)*pageSize:][:uint64(r.Count)*pageSize], unix.MADV_DONTNEED); err != nil {
				return n, fmt.Errorf("memimage: drop %d pages: %w", r.Count, err)
			}
		}
		n.Dropped, private, special = true, nil, nil
	}
	put := func(list []pagemap.Range, count *int) {
		want := cursor{x: x}
		for _, r := range list {
			for page := r.First; page < r.First+r.Count; page++ {
				now, then := host[uint64(page)*pageSize:][:pageSize], want.page(page)
				if bytes.Equal(now, then) {
					continue
				}
				*count++
				if special != nil && special(page) {
					n.addEntries(page, now, then)
				} else {
					copy(now, then)
				}
			}
		}
	}
	put(private, &n.Copied)
	if exact {
		return n, nil
	}
	// Pages that the balloon gave back, or that the image covers and the one
	// before did not.
	put(subtract(x.covered(), private), &n.Restored)
	return n, nil
}

// addEntries adds the words of a page that differ.
func (n *PutBack) addEntries(page uint32, now, then []byte) {
	le := binary.LittleEndian
	for at := 0; at < pageSize; at += 8 {
		if v := le.Uint64(then[at:]); le.Uint64(now[at:]) != v {
			n.Entries = append(n.Entries, Entry{uint64(page)*pageSize + uint64(at), v})
		}
	}
}
