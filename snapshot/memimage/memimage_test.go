package memimage

import (
	"bytes"
	"errors"
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
	if err := w.image.Lay(w.mem); err != nil {
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
		switch w.rng.IntN(5) {
		case 0:
			clear(now)
		case 1:
			now[7]++ // and back: private, not different
			now[7]--
		case 2:
			n := min(1+w.rng.IntN(8), pages-page)
			if err := w.mem.Reclaim(uint64(page)*pageSize, uint64(n)*pageSize); err != nil {
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

// A machine that runs, is saved and is rolled back to any of its checkpoints holds
// what it held then, and a new machine laid from a checkpoint does too.
func TestCheckpointsOfARandomMachine(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed)
			list := []saved{w.now()}
			for step := range 8 {
				w.run(60)
				w.save(step%2 == 0)
				list = append(list, w.now())
				w.run(30)
				to := list[w.rng.IntN(len(list))]
				x := w.reopen(to, step%2 == 0)
				if _, err := x.Rollback(w.mem, w.private(), false, nil); err != nil {
					t.Fatal(err)
				}
				w.image, w.want = x, bytes.Clone(to.want)
				w.check("rolled back")
			}
			for i, to := range list {
				mem, err := guestmem.Reserve(pages * pageSize)
				if err != nil {
					t.Fatal(err)
				}
				x := w.open(Plan{Base: to.plan.Base, Memory: to.plan.Memory, Hot: hot()}, slices.Clone(to.overlays))
				if err := x.Lay(mem); err != nil {
					t.Fatal(err)
				}
				x.Hot(mem)()
				if !bytes.Equal(mem.Host(), to.want) {
					t.Errorf("checkpoint %d, laid: memory differs", i)
				}
				mem.Unmap()
			}
		})
	}
}

func TestRollbackDropsALargeMemory(t *testing.T) {
	const size = (dropAbove + 100) * pageSize
	base := memfd(t, nil)
	if err := base.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := base.WriteAt([]byte("base"), 5*pageSize); err != nil {
		t.Fatal(err)
	}
	index, err := pageindex.FromHoles(base, size)
	if err != nil {
		t.Fatal(err)
	}
	mem, err := guestmem.Reserve(size)
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Unmap()
	x, err := Open(Plan{Base: index, Memory: index, Hot: &pageindex.Index{Pages: index.Pages}}, size, base, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := x.Lay(mem); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < size; i += pageSize {
		mem.Host()[i] = 1
	}
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	private, err := pagemap.New(f).Private(mem.Host(), nil)
	if err != nil {
		t.Fatal(err)
	}
	n, err := x.Rollback(mem, private, false, nil)
	if err != nil || !n.Dropped {
		t.Fatalf("%+v, %v", n, err)
	}
	if got := mem.Host()[5*pageSize:][:4]; string(got) != "base" || mem.Host()[0] != 0 || mem.Host()[size-pageSize] != 0 {
		t.Errorf("memory is %q, %d, %d", got, mem.Host()[0], mem.Host()[size-pageSize])
	}
}

func TestImageThatDoesNotFit(t *testing.T) {
	index := func(runs ...pageindex.Run) *pageindex.Index { return &pageindex.Index{Pages: pages, Runs: runs} }
	none := index()
	baseRun := pageindex.Run{First: 3, Count: 4, Source: pageindex.Base, At: 3}
	overlay := pageindex.Run{First: 3, Count: 4, Source: pageindex.FirstOverlay, At: pages - 3}
	for _, c := range []struct {
		name     string
		plan     Plan
		base     bool
		overlays int
	}{
		{"base is missing", Plan{Base: index(baseRun), Memory: none, Hot: none}, false, 0},
		{"base's page without base", Plan{Base: none, Memory: index(baseRun), Hot: none}, false, 0},
		{"overlay is missing", Plan{Base: none, Memory: index(overlay), Hot: none}, false, 0},
		{"overlay is short", Plan{Base: none, Memory: index(overlay), Hot: none}, false, 1},
		{"too many overlays", Plan{Base: none, Memory: none, Hot: none}, false, MaxOverlays + 1},
		{"other size", Plan{Base: &pageindex.Index{Pages: 7}, Memory: &pageindex.Index{Pages: 7}, Hot: none}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var base *os.File
			if c.base {
				base = memfd(t, nil)
			}
			var overlays []*os.File
			for range c.overlays {
				overlays = append(overlays, memfd(t, nil))
			}
			x, err := Open(c.plan, pages*pageSize, base, overlays)
			if err == nil {
				x.Close()
				t.Fatal("it was opened")
			}
			if !errors.Is(err, ErrImage) && !errors.Is(err, pageindex.ErrIndex) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzDecodePlan(f *testing.F) {
	run := pageindex.Run{First: 1, Count: 2, Source: pageindex.Base, At: 1}
	x := &pageindex.Index{Pages: pages, Runs: []pageindex.Run{run}}
	f.Add(Plan{Base: x, Memory: x, Hot: hot()}.Encode())
	f.Add([]byte{1, 0, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := DecodePlan(b, pages)
		if err != nil {
			if !errors.Is(err, ErrImage) {
				t.Errorf("error %v does not wrap ErrImage", err)
			}
			return
		}
		if got := p.Encode(); !bytes.Equal(got, b) {
			t.Errorf("%x was taken, and is %x", b, got)
		}
		if x, err := Open(p, pages*pageSize, memfd(t, nil), nil); err == nil {
			x.Close()
		}
	})
}
