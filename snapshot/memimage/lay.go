package memimage

import (
	"fmt"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/snapshot/pageindex"
)

// Lay makes the image the content of mem, which nothing has been laid over yet.
//
// Only runs of the base that hold data are mapped. The rest stays reserved
// memory, which the guest gets in huge pages, and which does not fill holes of the
// base's file: a write to a hole of a private mapping would make a page in the
// file first.
func (x *Image) Lay(mem *guestmem.Memory) error {
	if err := x.fits(mem); err != nil {
		return err
	}
	for _, r := range x.plan.Base.Runs {
		if err := mem.MapFile(x.file, uint64(r.First)*pageSize, uint64(r.Count)*pageSize); err != nil {
			return fmt.Errorf("memimage: lay base: %w", err)
		}
	}
	host := mem.Host()
	for _, r := range x.plan.Hot.Runs {
		// It spares the guest a fault each; without it the guest is only slower.
		_ = unix.Madvise(host[uint64(r.First)*pageSize:][:uint64(r.Count)*pageSize], unix.MADV_POPULATE_WRITE)
	}
	for _, r := range x.plan.Memory.Runs {
		if r.Source >= pageindex.FirstOverlay {
			copy(host[uint64(r.First)*pageSize:], x.bytes(r, r.Count))
		}
	}
	for _, r := range x.hidden() {
		clear(host[uint64(r.First)*pageSize:][:uint64(r.Count)*pageSize])
	}
	return nil
}

func (x *Image) fits(mem *guestmem.Memory) error {
	if want := uint64(x.plan.Memory.Pages) * pageSize; mem.Size() != want {
		return fmt.Errorf("memimage: image of %d bytes for a memory of %d: %w", want, mem.Size(), ErrImage)
	}
	return nil
}
