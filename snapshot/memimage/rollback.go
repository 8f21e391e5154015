package memimage

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
)

// dropAbove is from how many private pages on they are dropped instead of
// compared and copied back. Copying keeps the page tables hot, on which the
// guest's next step depends; dropping costs the same whatever the number is.
const dropAbove = 16 << 10

// PutBack counts what Rollback did, in pages.
type PutBack struct {
	Private, Copied, Restored int
	Dropped                   bool
}

// Rollback makes the image the content of mem again, over which an image with the
// same base was laid. private are the pages that are private now. Preconditions:
// nothing writes mem.
func (x *Image) Rollback(mem *guestmem.Memory, private []pagemap.Range) (PutBack, error) {
	if err := x.fits(mem); err != nil {
		return PutBack{}, err
	}
	n := PutBack{Private: pagemap.Pages(private)}
	host := mem.Host()
	if n.Private > dropAbove {
		for _, r := range private {
			if err := unix.Madvise(host[uint64(r.First)*pageSize:][:uint64(r.Count)*pageSize], unix.MADV_DONTNEED); err != nil {
				return n, fmt.Errorf("memimage: drop %d pages: %w", r.Count, err)
			}
		}
		n.Dropped, private = true, nil
	}
	want := cursor{x: x}
	for _, r := range private {
		for page := r.First; page < r.First+r.Count; page++ {
			now := host[uint64(page)*pageSize:][:pageSize]
			if then := want.page(page); !bytes.Equal(now, then) {
				copy(now, then)
				n.Copied++
			}
		}
	}
	// Pages that the balloon gave back, or that the image covers and the one
	// before did not.
	want = cursor{x: x}
	for _, r := range subtract(x.covered(), private) {
		for page := r.First; page < r.First+r.Count; page++ {
			copy(host[uint64(page)*pageSize:][:pageSize], want.page(page))
			n.Restored++
		}
	}
	return n, nil
}
