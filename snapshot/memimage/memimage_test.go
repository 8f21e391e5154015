package memimage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/guestmem"
	"thaw/internal/pagemap"
	"thaw/snapshot/pageindex"
)

// pages of a test's memory.
const pages = 600

// memfd returns a file with content, at least pages long.
func memfd(t testing.TB, content []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("memimage", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	if err := f.Truncate(pages * pageSize); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(content); i += pageSize {
		if page := content[i : i+pageSize]; !bytes.Equal(page, zeros[:]) {
			if _, err := f.WriteAt(page, int64(i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return f
}

// dup returns a file for somebody who closes it.
func dup(t testing.TB, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fd), f.Name())
}

// world is a machine's memory, its image, and what the memory should hold.
type world struct {
	t     testing.TB
	rng   *rand.Rand
	mem   *guestmem.Memory
	scan  *pagemap.Scanner
	base  *os.File
	first []byte // what it holds
	image *Image
	want  []byte // a model of the memory
}

func newWorld(t testing.TB, seed uint64) *world {
	t.Helper()
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 1)), want: make([]byte, pages*pageSize)}
	for page := range pages {
		if page/50%2 == 0 && w.rng.IntN(4) > 0 {
			w.fill(w.want, page)
		}
	}
	w.base, w.first = memfd(t, w.want), bytes.Clone(w.want)
	t.Cleanup(func() { w.base.Close() })
	var err error
	if w.mem, err = guestmem.Reserve(pages * pageSize); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.mem.Unmap() })
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w.scan = pagemap.New(f)
	index, err := pageindex.FromHoles(w.base, pages*pageSize)
	if err != nil {
		t.Fatal(err)
	}
	w.image = w.open(Plan{Base: index, Memory: index, Hot: hot()}, nil)
	if err := w.image.Lay(w.mem, nil); err != nil {
		t.Fatal(err)
	}
	w.check("laid")
	w.image.Hot(w.mem)()
	w.check("hot")
	private := w.private()
	for _, r := range hot().Runs {
		if !slices.ContainsFunc(private, func(p pagemap.Range) bool { return p.First <= r.First && p.First+p.Count >= r.End() }) {
			t.Errorf("hot pages %v are not private: %v", r, private)
		}
	}
	return w
}

// hot is a recording of some pages.
func hot() *pageindex.Index {
	return &pageindex.Index{Pages: pages, Runs: []pageindex.Run{{First: 3, Count: 5}, {First: 80, Count: 40}}}
}

// open opens an image; the one before stays the caller's.
func (w *world) open(plan Plan, overlays []*os.File) *Image {
	w.t.Helper()
	plan, err := DecodePlan(plan.Encode(), pages)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, f := range overlays {
		overlays[i] = dup(w.t, f)
	}
	x, err := Open(plan, pages*pageSize, dup(w.t, w.base), overlays)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { x.Close() })
	return x
}

func (w *world) fill(b []byte, page int) {
	for i := range 8 {
		b[page*pageSize+w.rng.IntN(pageSize)] = byte(w.rng.Uint32()) | byte(i+1)
	}
}

// run does what a guest does: writes, zeroes, writes the same again, gives back.
// It returns the pages that a dirty log would have.
func (w *world) run(steps int) []pagemap.Range {
	touched := guestmem.NewBitmap(pages * pageSize)
	for range steps {
		page := w.rng.IntN(pages)
		touched.SetRange(uint64(page)*pageSize, pageSize)
		now := w.mem.Host()[page*pageSize:][:pageSize]
		switch w.rng.IntN(6) {
		case 0:
			clear(now)
		case 3: // at times long enough to be mapped
			if w.rng.IntN(8) > 0 {
				break
			}
			n := min(2*mapAbove, pages-page)
			for i := range n {
				w.fill(w.mem.Host(), page+i)
			}
			touched.SetRange(uint64(page)*pageSize, uint64(n)*pageSize)
		case 1:
			now[7]++ // and back: private, not different
			now[7]--
		case 2:
			n := min(1+w.rng.IntN(8), pages-page)
			if _, err := w.mem.Reclaim(uint64(page)*pageSize, uint64(n)*pageSize); err != nil {
				w.t.Fatal(err)
			}
			touched.SetRange(uint64(page)*pageSize, uint64(n)*pageSize)
		default:
			w.fill(w.mem.Host(), page)
		}
	}
	w.want = bytes.Clone(w.mem.Host())
	var list []pagemap.Range
	touched.Drain(func(page uint64) { list = pagemap.Append(list, pagemap.Range{First: uint32(page), Count: 1}) })
	return list
}

func (w *world) check(when string) {
	w.t.Helper()
	if !bytes.Equal(w.mem.Host(), w.want) {
		for page := range pages {
			if !bytes.Equal(w.mem.Host()[page*pageSize:][:pageSize], w.want[page*pageSize:][:pageSize]) {
				w.t.Fatalf("%s: memory differs from page %d on", when, page)
			}
		}
	}
}

func (w *world) private() []pagemap.Range {
	w.t.Helper()
	list, err := w.scan.Private(w.mem.Host(), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

// saved is a checkpoint of the world.
type saved struct {
	plan     Plan
	overlays []*os.File
	want     []byte
}

// save makes a checkpoint, copying ahead or not.
func (w *world) save(ahead bool) {
	w.t.Helper()
	out := memfd(w.t, nil)
	d, err := w.image.NewDelta(w.mem, out)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := d.Add(w.image.Candidates(w.private())); err != nil {
		w.t.Fatal(err)
	}
	// To count what differs is to look as a delta does.
	if n, err := w.image.Differ(w.mem, w.image.Candidates(w.private())); err != nil || n != d.Stats().Candidates-d.Stats().Same {
		w.t.Fatalf("%d pages differ, of the delta %+v; %v", n, d.Stats(), err)
	}
	if ahead {
		if err := d.Add(w.run(20)); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.image, err = w.image.Extend(d.Index(), out); err != nil {
		w.t.Fatal(err)
	}
	// Nothing differs from the image now, whoever looks at whatever pages.
	full := []pagemap.Range{{First: 0, Count: pages}}
	if d, err = w.image.NewDelta(w.mem, memfd(w.t, nil)); err != nil {
		w.t.Fatal(err)
	}
	if err := d.Add(full); err != nil || len(d.Index().Runs) != 0 {
		w.t.Fatalf("after a save %v differs, %v", d.Index().Runs, err)
	}
}

// reopen opens a checkpoint in the place of the image, with the base's mapping or
// with a base that is another file.
func (w *world) reopen(to saved, sameBase bool) *Image {
	w.t.Helper()
	// The files of checkpoints stay open for later.
	w.image.files, w.image.overlays = nil, nil
	base := dup(w.t, w.base)
	if !sameBase {
		base = memfd(w.t, w.first)
	}
	overlays := slices.Clone(to.overlays)
	for i, f := range overlays {
		overlays[i] = dup(w.t, f)
	}
	x, err := w.image.Reopen(Plan{Base: to.plan.Base, Memory: to.plan.Memory, Hot: hot()}, base, overlays)
	if err != nil {
		w.t.Fatal(err)
	}
	return x
}

func (w *world) now() saved {
	return saved{plan: Plan{Base: w.image.plan.Base, Memory: w.image.plan.Memory}, overlays: slices.Clone(w.image.files), want: bytes.Clone(w.want)}
}

// lay has the world go on with a new machine, laid from a checkpoint.
func (w *world) lay(from saved) {
	w.t.Helper()
	mem, err := guestmem.Reserve(pages * pageSize)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { mem.Unmap() })
	x := w.open(Plan{Base: from.plan.Base, Memory: from.plan.Memory, Hot: hot()}, slices.Clone(from.overlays))
	if err := x.Lay(mem, nil); err != nil {
		w.t.Fatal(err)
	}
	w.mem, w.image, w.want = mem, x, bytes.Clone(from.want)
	w.check("laid")
	x.Hot(mem)()
	w.check("hot")
}

// A machine that runs, is saved and is rolled back to any of its checkpoints holds
// what it held then, and so does a new machine laid from a checkpoint, which goes on.
func TestCheckpointsOfARandomMachine(t *testing.T) {
	runs := 0
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			list := []saved{w.now()}
			for step := range 12 {
				w.run(60)
				w.save(step%2 == 0)
				list = append(list, w.now())
				if step%3 == 2 {
					w.lay(list[w.rng.IntN(len(list))])
					runs += len(w.image.mapped)
				}
				w.run(30)
				to := list[w.rng.IntN(len(list))]
				x := w.reopen(to, step%2 == 0)
				if _, err := x.Rollback(w.mem, w.private(), false, nil); err != nil {
					t.Fatal(err)
				}
				w.image, w.want = x, bytes.Clone(to.want)
				w.check("rolled back")
				if w.rng.IntN(3) == 0 { // all that was written, dropped: as with a large memory
					w.dropAll()
				}
			}
			for _, to := range list {
				w.lay(to)
			}
		})
	}
	if runs < 40 {
		t.Errorf("%d runs of overlays were mapped", runs)
	}
}

// dropAll gives every private page back, and has the image put back what the bare mapping
// does not show.
func (w *world) dropAll() {
	w.t.Helper()
	if err := unix.Madvise(w.mem.Host(), unix.MADV_DONTNEED); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.image.Rollback(w.mem, nil, false, nil); err != nil {
		w.t.Fatal(err)
	}
	w.check("dropped and put back")
}

// Of more runs than can be mapped, the longer ones are.
func TestMapsAreBounded(t *testing.T) {
	x := &Image{plan: Plan{Memory: &pageindex.Index{}}}
	for i := range uint32(3 * maxMapped) {
		count := uint32(mapAbove)
		if i%3 == 0 {
			count *= 3
		}
		x.plan.Memory.Runs = append(x.plan.Memory.Runs, pageindex.Run{First: 100 * i, Count: count, Source: pageindex.FirstOverlay})
	}
	if n := x.longRuns(); n != 2*mapAbove {
		t.Errorf("runs of %d pages are mapped", n)
	}
}
