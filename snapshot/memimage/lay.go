package memimage

import (
	"fmt"

	"thaw/internal/guestmem"
	"thaw/internal/uffd"
	"thaw/snapshot/pageindex"
)

// mapAbove is from how many pages on a run of an overlay is mapped, which is cheaper than
// to copy it, and shared by all machines of the image; maxMapped is how many are. Where
// there are more, only the longer ones are.
const (
	mapAbove  = 16
	maxMapped = 512
)

// Lay makes the image the content of mem, which nothing has been laid over yet.
//
// Of the base, only runs that hold data are mapped. The rest stays reserved
// memory, which the guest gets in huge pages, and which does not fill holes of the
// base's file: a write to a hole of a private mapping would make a page in the
// file first. Of overlays, long runs are mapped, and short ones copied. For that fill is a
// descriptor of uffd.UserModeOnly or nil; it is closed, unless there is an error.
func (x *Image) Lay(mem *guestmem.Memory, fill *uffd.FD) error {
	if err := x.fits(mem); err != nil {
		return err
	}
	for _, r := range x.plan.Base.Runs {
		if err := mem.MapFile(x.file, uint64(r.First)*pageSize, uint64(r.First)*pageSize, uint64(r.Count)*pageSize); err != nil {
			return fmt.Errorf("memimage: lay base: %w", err)
		}
	}
	host, long := mem.Host(), x.longRuns()
	var short []pageindex.Run
	for _, r := range x.plan.Memory.Runs {
		switch {
		case r.Source < pageindex.FirstOverlay:
		case r.Count >= long:
			i := r.Source - pageindex.FirstOverlay
			if err := mem.MapFile(x.files[i], uint64(r.At)*pageSize, uint64(r.First)*pageSize, uint64(r.Count)*pageSize); err != nil {
				return fmt.Errorf("memimage: lay overlay: %w", err)
			}
			x.mapped = append(x.mapped, mapped{r, x.infos[i]})
		default:
			short = append(short, r)
		}
	}
	if err := x.copyIn(host, short, fill); err != nil {
		return fmt.Errorf("memimage: lay overlay: %w", err)
	}
	for _, r := range x.hidden() {
		clear(host[uint64(r.First)*pageSize:][:uint64(r.Count)*pageSize])
	}
	return nil
}

// longRuns returns from how many pages on runs of overlays are mapped.
func (x *Image) longRuns() uint32 {
	for long := uint32(mapAbove); ; long *= 2 {
		n := 0
		for _, r := range x.plan.Memory.Runs {
			if r.Source >= pageindex.FirstOverlay && r.Count >= long {
				n++
			}
		}
		if n <= maxMapped {
			return long
		}
	}
}

// Hot returns a function that makes the pages which the guest is going to write its own,
// in whatever state they are, which spares it a fault each. It may be called while the
// guest runs, and the image need not be open any more.
//
// The runs are short, one page and a half: to write to each page costs less than a call of
// madvise(MADV_POPULATE_WRITE) for each run, and from 8 pages on as much.
func (x *Image) Hot(mem *guestmem.Memory) func() {
	host, runs := mem.Host(), x.plan.Hot.Runs
	return func() {
		for _, r := range runs {
			for page := r.First; page < r.End(); page++ {
				guestmem.Touch(host, int(page)*pageSize)
			}
		}
	}
}

func (x *Image) fits(mem *guestmem.Memory) error {
	if want := uint64(x.plan.Memory.Pages) * pageSize; mem.Size() != want {
		return fmt.Errorf("memimage: image of %d bytes for a memory of %d: %w", want, mem.Size(), ErrImage)
	}
	return nil
}
