// Package memimage is a machine's memory as a snapshot describes it, at work:
// laid over the memory of a new machine, compared with what a machine has made of
// it, and put back in place.
//
//	          base      ▓▓▓▓▓▓░░░░▓▓▓▓░░   the template, at the same offsets; ░ zeros
//	          overlays   █ █     ██    █   pages that checkpoints added, densely
//	guest's memory      ▓█▓█▓▓░░░██▓▓░░█   private mapping of base and of long runs of
//	                                       overlays, the rest of them copied in
//
// The guest's memory is a private mapping: a page is the guest's own once it has
// been written, and until then it is the base's or an overlay's. So what may differ from an image
// is what is private now, or was when the image was laid; only that is looked at.
package memimage

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/snapshot/pageindex"
)

const pageSize = guestmem.PageSize

// MaxOverlays is how many files of pages an image can have besides its base.
const MaxOverlays = 16

// ErrImage is wrapped when files and index are not an image of the memory.
var ErrImage = errors.New("not an image of this memory")

// Image is a memory image that is open. It is not for use by several goroutines.
type Image struct {
	plan     Plan
	file     *os.File // base, or nil
	base     []byte   // read-only mapping of it
	overlays [][]byte // read-only mappings
	files    []*os.File
	infos    []os.FileInfo // of files
	mapped   []mapped      // what the memory shows besides the base, ascending
}

// Open opens the image of size bytes that plan describes. base may be nil where
// the plan has no base. The files are the image's from then on, also after an
// error; Close closes them. Files must not shrink: the daemon seals them.
func Open(plan Plan, size uint64, base *os.File, overlays []*os.File) (*Image, error) {
	return open(plan, size, base, overlays, nil)
}

// open is Open with a mapping of the base, if there is one already; after an
// error that is still the caller's.
func open(plan Plan, size uint64, base *os.File, overlays []*os.File, mapping []byte) (_ *Image, err error) {
	x := &Image{plan: plan, file: base, files: overlays}
	defer func() {
		if err != nil {
			if len(mapping) > 0 {
				x.base = nil
			}
			x.Close()
		}
	}()
	if len(overlays) > MaxOverlays {
		return nil, fmt.Errorf("memimage: %d overlays, at most %d are possible: %w", len(overlays), MaxOverlays, ErrImage)
	}
	pages := uint32(size / pageSize)
	if plan.Memory.Pages != pages || plan.Base.Pages != pages {
		return nil, fmt.Errorf("memimage: index of %d and %d pages, memory has %d: %w", plan.Memory.Pages, plan.Base.Pages, pages, ErrImage)
	}
	sizes := make([]uint32, len(overlays))
	x.infos = make([]os.FileInfo, len(overlays))
	for i, f := range overlays {
		if sizes[i], x.infos[i], err = filePages(f); err != nil {
			return nil, err
		}
	}
	if err := plan.Memory.Validate(sizes); err != nil {
		return nil, fmt.Errorf("memimage: %w", err)
	}
	if err := plan.Base.Validate(nil); err != nil {
		return nil, fmt.Errorf("memimage: base: %w", err)
	}
	switch have, _, err := filePages(base); {
	case err != nil:
		return nil, err
	case base == nil && (len(plan.Base.Runs) > 0 || plan.Memory.Count(isBase) > 0):
		return nil, fmt.Errorf("memimage: base is missing: %w", ErrImage)
	case base != nil && have != pages:
		return nil, fmt.Errorf("memimage: base of %d pages, memory has %d: %w", have, pages, ErrImage)
	}
	if x.base = mapping; base != nil && mapping == nil {
		if x.base, err = mapFile(base, pages); err != nil {
			return nil, err
		}
	}
	for i, f := range overlays {
		m, err := mapFile(f, sizes[i])
		if err != nil {
			return nil, err
		}
		x.overlays = append(x.overlays, m)
	}
	return x, nil
}

func isBase(source uint16) bool { return source == pageindex.Base }

// filePages is how many whole pages f has, and which file it is.
func filePages(f *os.File) (uint32, os.FileInfo, error) {
	if f == nil {
		return 0, nil, nil
	}
	info, err := f.Stat()
	if err != nil {
		return 0, nil, fmt.Errorf("memimage: stat file: %w", err)
	}
	return uint32(min(uint64(info.Size())/pageSize, 1<<31)), info, nil
}

func mapFile(f *os.File, pages uint32) ([]byte, error) {
	if pages == 0 {
		return nil, nil
	}
	// Private: the file can be sealed against writing while we have it mapped.
	m, err := unix.Mmap(int(f.Fd()), 0, int(pages)*pageSize, unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("memimage: map %d pages: %w", pages, err)
	}
	return m, nil
}

// Reopen opens an image in the place of x, which is closed, and takes over the
// mapping of the base, if it is the same file: its page tables are hot. If all is
// the same it returns x. After an error x is as it was.
func (x *Image) Reopen(plan Plan, base *os.File, overlays []*os.File) (*Image, error) {
	if x.is(plan, base, overlays) {
		x.plan = plan
		for _, f := range append(overlays, base) {
			f.Close()
		}
		return x, nil
	}
	size := uint64(x.plan.Memory.Pages) * pageSize
	if base == nil || x.file == nil || !sameFile(base, x.file) {
		next, err := Open(plan, size, base, overlays)
		if err != nil {
			return nil, err
		}
		next.mapped = x.mapped
		return next, x.Close()
	}
	own := x.base
	next, err := open(plan, size, base, overlays, own)
	if err != nil {
		return nil, err
	}
	x.base, next.mapped = nil, x.mapped
	return next, x.Close()
}

// is says whether x has the pages of plan in these files already.
func (x *Image) is(plan Plan, base *os.File, overlays []*os.File) bool {
	if base == nil || x.file == nil || len(overlays) != len(x.files) || !sameFile(base, x.file) {
		return false
	}
	for i, f := range overlays {
		if !sameFile(f, x.files[i]) {
			return false
		}
	}
	return slices.Equal(plan.Memory.Runs, x.plan.Memory.Runs) && slices.Equal(plan.Base.Runs, x.plan.Base.Runs)
}

func sameFile(a, b *os.File) bool {
	x, err := a.Stat()
	if err != nil {
		return false
	}
	y, err := b.Stat()
	return err == nil && os.SameFile(x, y)
}

// Close unmaps and closes the files.
func (x *Image) Close() error {
	var errs []error
	for _, m := range append(x.overlays, x.base) {
		if m != nil {
			errs = append(errs, unix.Munmap(m))
		}
	}
	for _, f := range append(x.files, x.file) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	*x = Image{}
	return errors.Join(errs...)
}

// Index says where the image's pages are.
func (x *Image) Index() *pageindex.Index { return x.plan.Memory }

// zeros is a page of them.
var zeros [pageSize]byte

// bytes returns the first n pages of a run.
func (x *Image) bytes(r pageindex.Run, n uint32) []byte {
	switch r.Source {
	case pageindex.Zero:
		return nil
	case pageindex.Base:
		return x.base[uint64(r.First)*pageSize:][:uint64(n)*pageSize]
	}
	return x.overlays[r.Source-pageindex.FirstOverlay][uint64(r.At)*pageSize:][:uint64(n)*pageSize]
}

// Page returns what the image has for a page, which must be one of the memory's.
// The bytes must not be changed.
func (x *Image) Page(page uint32) []byte {
	r, ok := x.plan.Memory.Lookup(page)
	if !ok || r.Source == pageindex.Zero {
		return zeros[:]
	}
	skip := page - r.First
	r.First, r.At = r.First+skip, r.At+skip
	return x.bytes(r, 1)
}

// All calls f for each page that is not known to be zeros, in ascending order,
// until f returns false.
func (x *Image) All(f func(page uint32, b []byte) bool) {
	for _, r := range x.plan.Memory.Runs {
		b := x.bytes(r, r.Count)
		for i := 0; i < len(b); i += pageSize {
			if !f(r.First+uint32(i/pageSize), b[i:i+pageSize:i+pageSize]) {
				return
			}
		}
	}
}

// cursor looks pages up in ascending order.
type cursor struct {
	x *Image
	i int // run that the last page was in, or the next one
}

// page returns what the image has for a page: zeros where no run has it.
func (c *cursor) page(page uint32) []byte {
	runs := c.x.plan.Memory.Runs
	for c.i < len(runs) && runs[c.i].First+runs[c.i].Count <= page {
		c.i++
	}
	if c.i == len(runs) || runs[c.i].First > page {
		return zeros[:]
	}
	r := runs[c.i]
	skip := page - r.First
	r.First, r.At = r.First+skip, r.At+skip
	if b := c.x.bytes(r, 1); b != nil {
		return b
	}
	return zeros[:]
}
