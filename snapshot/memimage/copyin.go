package memimage

import (
	"thaw/internal/uffd"
	"thaw/snapshot/pageindex"
)

// copyIn copies runs of overlays into host, where nothing has been written yet. fill may
// be nil; it is closed.
//
// By a plain copy each page is a fault, which first makes the page a copy of what the base
// has there. With a userfaultfd the kernel is given the page and looks at neither: two
// thirds of the time for runs of a page or two.
func (x *Image) copyIn(host []byte, runs []pageindex.Run, fill *uffd.FD) error {
	parts := func(r pageindex.Run) (to, from []byte) {
		return host[uint64(r.First)*pageSize:][:uint64(r.Count)*pageSize], x.bytes(r, r.Count)
	}
	var left []pageindex.Run
	// Not registered for nothing; and it cannot be where a file is mapped that lies on a disk.
	if fill == nil || len(runs) == 0 || fill.RegisterMissing(uffd.Of(host)) != nil {
		left = runs
	} else {
		for _, r := range runs {
			if fill.Copy(parts(r)) != nil {
				left = append(left, r)
			}
		}
	}
	// Before any page is touched: one that is not there would be waited for.
	if fill != nil {
		if err := fill.Close(); err != nil {
			return err
		}
	}
	for _, r := range left {
		copy(parts(r))
	}
	return nil
}
