package fleet

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"thaw/broker/fleet/files"
	"thaw/snapshot/layer"
	"thaw/snapshot/memimage"
	"thaw/snapshot/pageindex"
	"thaw/vmm/vmmproc"
)

// maxOverlays is how many files of pages a restore hands over besides the base. Longer
// chains are folded: so depth costs nothing.
const maxOverlays = 8

// image is a snapshot in use: everything that a restore hands over is open. It does
// not change, but for plan, hot and jobs.
type image struct {
	id        string
	parent    string
	template  string // whose memory is the base
	class     Class
	imageName string
	depth     int
	warm      map[string]uint64 // exec ids of warm interpreters, by runtime
	diskSize  int64

	state    *shared
	base     *shared
	overlays []*shared
	memory   *pageindex.Index // where each page is
	data     *pageindex.Index // of the base
	disks    []disk

	// Of images, protected by its mu.
	plan        *shared
	hot         *pageindex.Index   // pages that will be written, as plan has them; nil: not known yet
	jobs        map[string]*shared // plans with those that a job writes, by runtime; nil: being found out, or given up
	jobFailures int
	refs        int
	stored      bool           // it is in the store
	changed     bool           // a merge has replaced its files before stored was set
	unleased    map[*held]bool // uses from before it was
	failed      error          // why it never will be
	used        int64          // tick of the last use
}

// disk is one disk of an image, without the top that each machine has for itself.
type disk struct {
	id       string
	readOnly bool
	size     int64 // bytes
	layers   []*shared
}

// planFile makes the file that tells a VMM how to lay the memory.
func planFile(memory, data, hot *pageindex.Index) (*shared, error) {
	f, err := files.Sealed("thaw-plan", memimage.Plan{Base: data, Memory: memory, Hot: hot}.Encode())
	if err != nil {
		return nil, err
	}
	return share(f), nil
}

// handOver is what a VMM is given, with top for the writable disk.
func (im *image) handOver(plan *shared, top *os.File) vmmproc.Image {
	v := vmmproc.Image{State: im.state.File, Plan: plan.File, Base: im.base.File, Disks: make([]vmmproc.Disk, 0, len(im.disks))}
	for _, o := range im.overlays {
		v.Overlays = append(v.Overlays, o.File)
	}
	for _, d := range im.disks {
		out := vmmproc.Disk{ID: d.id, ReadOnly: d.readOnly, Layers: make([]*os.File, 0, len(d.layers)+1)}
		for _, l := range d.layers {
			out.Layers = append(out.Layers, l.File)
		}
		if !d.readOnly {
			out.Layers = append(out.Layers, top)
		}
		v.Disks = append(v.Disks, out)
	}
	return v
}

// layers is how many files the disk with the most has.
func (im *image) layers() (n int) {
	for _, d := range im.disks {
		n = max(n, len(d.layers))
	}
	return n
}

// close lets go of the files.
func (im *image) close() {
	for _, s := range slices.Concat([]*shared{im.state, im.plan, im.base}, im.overlays, slices.Collect(maps.Values(im.jobs))) {
		s.release()
	}
	for _, d := range im.disks {
		for _, l := range d.layers {
			l.release()
		}
	}
}

// child starts the image of a checkpoint of a machine that runs on im: it shares all
// that im has.
func (im *image) child(id string) *image {
	c := &image{
		id: id, parent: im.id, template: im.template, class: im.class, imageName: im.imageName, depth: im.depth + 1, warm: im.warm, diskSize: im.diskSize,
		base: im.base.use(), data: im.data, memory: im.memory,
	}
	for _, o := range im.overlays {
		c.overlays = append(c.overlays, o.use())
	}
	for _, d := range im.disks {
		n := disk{id: d.id, readOnly: d.readOnly, size: d.size}
		for _, l := range d.layers {
			n.layers = append(n.layers, l.use())
		}
		c.disks = append(c.disks, n)
	}
	return c
}

// add puts a delta on top, whose pages are in file, which stays the caller's; nil if
// it has none.
func (im *image) add(delta *pageindex.Index, file *shared) error {
	own := pageindex.FirstOverlay + uint16(len(im.overlays))
	if file != nil {
		im.overlays = append(im.overlays, file.use())
	}
	im.memory = pageindex.Merge(im.memory, delta.Renumber(func(uint16) uint16 { return own })).WithoutZero()
	return im.fold()
}

// fold makes one overlay out of the newest ones when there are too many: of those that
// together are as large as the next older one. So each page is copied a number of
// times that grows with the logarithm of the chain, not with its length.
func (im *image) fold() error {
	if len(im.overlays) <= maxOverlays {
		return nil
	}
	sizes := make([]int64, len(im.overlays))
	for _, u := range im.memory.Sources() {
		if u.Source >= pageindex.FirstOverlay {
			sizes[u.Source-pageindex.FirstOverlay] = int64(u.Pages)
		}
	}
	from := len(sizes) - 1
	for sum := sizes[from]; from > 0 && (sizes[from-1] <= sum || from > maxOverlays-1); {
		from--
		sum += sizes[from]
	}
	into := pageindex.FirstOverlay + uint16(from)
	memory, moves := pageindex.Compact(im.memory, func(s uint16) bool { return s < into }, into)
	file, err := copyPages(im.overlays, moves)
	if err != nil {
		return fmt.Errorf("fleet: fold overlays: %w", err)
	}
	for _, o := range im.overlays[from:] {
		o.release()
	}
	im.overlays, im.memory = append(im.overlays[:from:from], file), memory
	return nil
}

// copyPages makes a sealed file of the pages that moves name.
func copyPages(overlays []*shared, moves []pageindex.Move) (*shared, error) {
	var pages int64
	for _, m := range moves {
		pages = max(pages, int64(m.To)+int64(m.Count))
	}
	f, err := layer.NewMemfd("thaw-overlay", pages*pageSize)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, mib)
	for _, m := range moves {
		if err = copyRun(f, overlays[m.Source-pageindex.FirstOverlay].File, m, buf); err != nil {
			break
		}
	}
	if err == nil {
		err = layer.Seal(f)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return share(f), nil
}

// copyRun carries out one move.
func copyRun(to, from *os.File, m pageindex.Move, buf []byte) error {
	for done := int64(0); done < int64(m.Count)*pageSize; {
		b := buf[:min(int64(len(buf)), int64(m.Count)*pageSize-done)]
		if _, err := from.ReadAt(b, int64(m.From)*pageSize+done); err != nil {
			return err
		}
		if _, err := to.WriteAt(b, int64(m.To)*pageSize+done); err != nil {
			return err
		}
		done += int64(len(b))
	}
	return nil
}
