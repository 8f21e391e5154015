package memimage

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/snapshot/pageindex"
)

// Delta collects the pages in which a memory differs from an image, into a file,
// one after the other. Candidates may be added more than once: while the guest
// runs, and once more, those that it has written meanwhile, when it is paused.
type Delta struct {
	// Taken is called for each page that is taken, with what it holds; may be
	// nil. The bytes may change at any time, and must not be changed.
	Taken func(page uint32, b []byte)

	image *Image
	host  []byte
	out   *os.File
	slots slots
	next  uint32 // slot
	stats DeltaStats
	// A batch of pages that follow each other in out.
	batch   [][]byte
	batchAt uint32
}

// batchPages is how many pages one system call writes (IOV_MAX).
const batchPages = 1024

// DeltaStats counts pages.
type DeltaStats struct {
	Candidates int // looked at, again and again
	Same       int // of them, as in the image
}

// NewDelta starts a delta of mem on the image. out is an empty file of mem's size.
func (x *Image) NewDelta(mem *guestmem.Memory, out *os.File) (*Delta, error) {
	if err := x.fits(mem); err != nil {
		return nil, err
	}
	return &Delta{image: x, host: mem.Host(), out: out, slots: newSlots(x.plan.Memory.Pages), batch: make([][]byte, 0, batchPages)}, nil
}

// Candidates returns the pages that can differ from the image when private are
// those that are private now.
func (x *Image) Candidates(private []pagemap.Range) []pagemap.Range {
	return union(private, x.covered())
}

// Differ counts the pages among candidates, in ascending order, in which mem differs from
// the image. Those that mem's owner writes meanwhile may count or not.
func (x *Image) Differ(mem *guestmem.Memory, candidates []pagemap.Range) (n int, err error) {
	if err := x.fits(mem); err != nil {
		return 0, err
	}
	host, was := mem.Host(), cursor{x: x}
	for _, r := range candidates {
		for page := r.First; page < r.First+r.Count; page++ {
			if !bytes.Equal(host[uint64(page)*pageSize:][:pageSize], was.page(page)) {
				n++
			}
		}
	}
	return n, nil
}

// Add looks at pages, in ascending order, and takes those that differ.
func (d *Delta) Add(candidates []pagemap.Range) error {
	return d.add(candidates, func(page uint32, _ int) []byte { return d.host[uint64(page)*pageSize:][:pageSize] })
}

// AddStaged is Add of pages whose content was copied to staged, one after the other,
// which may be a mapping of the delta's own file from its start on: pages only move
// towards its start. Nothing else may have been added.
func (d *Delta) AddStaged(candidates []pagemap.Range, staged []byte) error {
	return d.add(candidates, func(_ uint32, n int) []byte { return staged[n*pageSize:][:pageSize] })
}

// add looks at pages; content is called with each and how many came before it.
func (d *Delta) add(candidates []pagemap.Range, content func(page uint32, n int) []byte) error {
	was, n := cursor{x: d.image}, 0
	for _, r := range candidates {
		d.stats.Candidates += int(r.Count)
		for page := r.First; page < r.First+r.Count; page++ {
			now := content(page, n)
			n++
			if bytes.Equal(now, was.page(page)) {
				d.stats.Same++
				d.slots.set(page, noSlot)
				continue
			}
			if d.Taken != nil {
				d.Taken(page, now)
			}
			switch slot := d.slots.get(page); {
			case bytes.Equal(now, zeros[:]):
				d.slots.set(page, zeroSlot)
			case slot != noSlot && slot != zeroSlot:
				if err := d.write(slot, now); err != nil {
					return err
				}
			default:
				d.slots.set(page, d.next)
				if err := d.write(d.next, now); err != nil {
					return err
				}
				d.next++
			}
		}
	}
	return d.flush()
}

// write puts a page into the batch, which is written when it is full or the page
// does not follow.
func (d *Delta) write(slot uint32, page []byte) error {
	if len(d.batch) == batchPages || len(d.batch) > 0 && d.batchAt+uint32(len(d.batch)) != slot {
		if err := d.flush(); err != nil {
			return err
		}
	}
	if len(d.batch) == 0 {
		d.batchAt = slot
	}
	d.batch = append(d.batch, page)
	return nil
}

func (d *Delta) flush() error {
	if len(d.batch) == 0 {
		return nil
	}
	want := len(d.batch) * pageSize
	n, err := unix.Pwritev2(int(d.out.Fd()), d.batch, int64(d.batchAt)*pageSize, 0)
	if err == nil && n != want {
		err = fmt.Errorf("%d of %d bytes written: %w", n, want, unix.ENOSPC)
	}
	d.batch = d.batch[:0]
	if err != nil {
		return fmt.Errorf("memimage: write pages: %w", err)
	}
	return nil
}

// Pages is how many pages the file has, those that differ no more included.
func (d *Delta) Pages() uint32 { return d.next }

// Stats returns what was counted.
func (d *Delta) Stats() DeltaStats { return d.stats }

// Index returns the delta: runs of pages of zeros, and of pages of the file as
// its first overlay.
func (d *Delta) Index() *pageindex.Index {
	x := pageindex.NewBuilder(d.image.plan.Memory.Pages)
	d.slots.all(func(page, slot uint32) {
		r := pageindex.Run{First: page, Count: 1, Source: pageindex.FirstOverlay, At: slot}
		if slot == zeroSlot {
			r.Source, r.At = pageindex.Zero, 0
		}
		if err := x.Add(r); err != nil {
			panic(err) // a page of ours beyond our memory: a programming error
		}
	})
	return x.Index()
}

// Extend returns the image with a delta on top; file is the delta's, and the
// image's from then on. x must not be used any more. It fails when there are
// MaxOverlays already, and x stays as it is.
func (x *Image) Extend(delta *pageindex.Index, file *os.File) (*Image, error) {
	if len(x.overlays) == MaxOverlays {
		return nil, fmt.Errorf("memimage: image has %d overlays already: %w", len(x.overlays), ErrImage)
	}
	pages, info, err := filePages(file)
	if err != nil {
		return nil, err
	}
	if err := delta.Validate([]uint32{pages}); err != nil {
		return nil, fmt.Errorf("memimage: %w", err)
	}
	m, err := mapFile(file, pages)
	if err != nil {
		return nil, err
	}
	last := pageindex.FirstOverlay + uint16(len(x.overlays))
	moved := delta.Renumber(func(uint16) uint16 { return last })
	out := *x
	out.plan.Memory = pageindex.Merge(x.plan.Memory, moved)
	out.overlays = append(slices.Clip(x.overlays), m)
	out.files, out.infos = append(slices.Clip(x.files), file), append(slices.Clip(x.infos), info)
	*x = Image{}
	return &out, nil
}
