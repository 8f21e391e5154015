package hot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
	"thaw/snapshot/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const page = pageindex.PageSize

// rig is a store with a machine that can be saved.
type rig struct {
	testing.TB
	s     *store.Store
	rng   *rand.Rand
	mem   []byte
	dirty map[uint32]bool
}

func newRig(t testing.TB, pages int) *rig {
	s, err := store.Open(store.Options{Root: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &rig{TB: t, s: s, rng: rand.New(rand.NewPCG(1, 2)), mem: make([]byte, pages*page), dirty: map[uint32]bool{}}
	for p := range pages {
		if p%3 != 0 {
			r.mem[p*page] = byte(p | 1)
		}
	}
	return r
}

func (r *rig) touch(n int) {
	for range n {
		p := r.rng.IntN(len(r.mem) / page)
		r.dirty[uint32(p)] = true
		if r.rng.IntN(5) == 0 {
			clear(r.mem[p*page:][:page])
		} else {
			r.mem[p*page+r.rng.IntN(page)] = byte(r.rng.IntN(256))
		}
	}
}

func (r *rig) memfd(b []byte) *os.File {
	f, err := layer.NewMemfd("test", int64(len(b)))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { f.Close() })
	if _, err := f.WriteAt(b, 0); err != nil {
		r.Fatal(err)
	}
	return f
}

func (r *rig) save(parent string) string {
	spec := store.Spec{Kind: store.Checkpoint, Parent: parent, Machine: store.Machine{VCPUs: 1, MemoryBytes: uint64(len(r.mem))}}
	pages := r.mem
	b := pageindex.NewBuilder(uint32(len(r.mem) / page))
	if parent == "" {
		spec.Kind = store.Template
	} else {
		pages = nil
		for p := range uint32(len(r.mem) / page) {
			now := r.mem[p*page:][:page]
			if !r.dirty[p] {
				continue
			}
			run := pageindex.Run{First: p, Count: 1, Source: pageindex.FirstOverlay, At: uint32(len(pages) / page)}
			if bytes.Equal(now, make([]byte, page)) {
				run.Source, run.At = pageindex.Zero, 0
			} else {
				pages = append(pages, now...)
			}
			if err := b.Add(run); err != nil {
				r.Fatal(err)
			}
		}
	}
	clear(r.dirty)
	var w format.Writer
	if err := w.Add(format.SectionMemory, b.Index().Encode()); err != nil {
		r.Fatal(err)
	}
	var state bytes.Buffer
	if _, err := w.WriteTo(&state); err != nil {
		r.Fatal(err)
	}
	d, err := r.s.Begin(spec)
	if err != nil {
		r.Fatal(err)
	}
	content := store.Content{State: r.memfd(state.Bytes()), StateBytes: int64(state.Len()), Memory: r.memfd(pages)}
	if _, err := d.Commit(context.Background(), content); err != nil {
		r.Fatal(err)
	}
	return d.ID
}

// memory is the memory of a snapshot, and how many overlays it took.
func (r *rig) memory(c *Cache, id string) ([]byte, int) {
	r.Helper()
	chain, err := r.s.Resolve(context.Background(), id)
	if err != nil {
		r.Fatal(err)
	}
	defer chain.Close()
	m, err := c.Memory(context.Background(), r.s, chain)
	if err != nil {
		r.Fatal(err)
	}
	defer m.Release()
	var sizes []uint32
	for _, f := range append([]*os.File{m.Base}, m.Overlays...) {
		if !layer.Sealed(f) {
			r.Error("a file is not sealed")
		}
		info, err := f.Stat()
		if err != nil {
			r.Fatal(err)
		}
		sizes = append(sizes, uint32(info.Size()/page))
	}
	if err := m.Index.Validate(sizes[1:]); err != nil {
		r.Fatal(err)
	}
	mem := make([]byte, len(r.mem))
	for run := range m.Index.All() {
		f := m.Base
		if run.Dense() {
			f = m.Overlays[run.Source-pageindex.FirstOverlay]
		}
		if _, err := f.ReadAt(mem[run.First*page:run.End()*page], int64(run.At)*page); err != nil {
			r.Fatal(err)
		}
	}
	return mem, len(m.Overlays)
}

// At every depth, cold or hot, with a parent merged meanwhile, the memory is right.
func TestMemoryAtEveryDepth(t *testing.T) {
	r := newRig(t, 300)
	warm := New(1 << 30)
	defer warm.Close()
	ids, mem := []string{r.save("")}, [][]byte{bytes.Clone(r.mem)}
	check := func(c *Cache, i int) {
		t.Helper()
		got, n := r.memory(c, ids[i])
		if !bytes.Equal(got, mem[i]) {
			t.Fatalf("depth %d: memory differs", i)
		}
		if n > MaxOverlays {
			t.Fatalf("depth %d: %d overlays", i, n)
		}
	}
	for i := 1; i <= 70; i++ {
		r.touch(12)
		ids, mem = append(ids, r.save(ids[i-1])), append(mem, bytes.Clone(r.mem))
		check(warm, i)
	}
	for i := range ids {
		cold := New(1 << 30)
		check(cold, i)
		cold.Close()
		check(warm, i)
	}
	// 64 has become one layer for itself; those above it name the old ones.
	for _, i := range []int{64, 32, 66} {
		if _, err := r.s.Merge(context.Background(), ids[i]); err != nil {
			t.Fatal(err)
		}
		cold := New(1 << 30)
		for _, j := range []int{31, 32, 33, 64, 65, 66, 67, 70} {
			check(cold, j)
			check(warm, j)
		}
		cold.Close()
	}
	small := New(1 << 22) // has to drop files all the time
	for i := range ids {
		check(small, len(ids)-1-i)
	}
	if s := small.Stats(); s.Evicted == 0 || s.Bytes > 1<<22 {
		t.Errorf("%+v", s)
	}
	small.Close()
	if s := small.Stats(); s.Files != 0 || s.Bytes != 0 {
		t.Errorf("%+v", s)
	}
	tiny := New(page)
	defer tiny.Close()
	chain, err := r.s.Resolve(context.Background(), ids[3])
	if err != nil {
		t.Fatal(err)
	}
	defer chain.Close()
	if _, err := tiny.Memory(context.Background(), r.s, chain); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

func TestSpans(t *testing.T) {
	for n := range 3000 {
		at := 0
		got := spans(n, MaxOverlays)
		for i, s := range got {
			if s.first != at || s.last <= s.first {
				t.Fatalf("%d: %v", n, got)
			}
			if size := s.last - s.first; i < MaxOverlays-1 && size&(size-1) != 0 {
				t.Fatalf("%d: %v", n, got)
			}
			at = s.last
		}
		if at != n || len(got) > MaxOverlays || len(got) != min(bits.OnesCount(uint(n)), MaxOverlays) {
			t.Fatalf("%d: %v", n, got)
		}
	}
}

func sealed(t testing.TB, n int) *os.File {
	f, err := layer.NewMemfd("test", int64(n))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(bytes.Repeat([]byte{1}, n), 0); err != nil {
		t.Fatal(err)
	}
	if err := layer.Seal(f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestCacheLoadsOnce(t *testing.T) {
	c := New(10 * page)
	defer c.Close()
	loads := 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			h, err := c.get(context.Background(), "a", func(context.Context) (*os.File, *pageindex.Index, error) {
				loads++
				return sealed(t, page), nil, nil
			})
			if err != nil {
				t.Error(err)
				return
			}
			h.Release()
			h.Release()
		})
	}
	wg.Wait()
	if s := c.Stats(); loads != 1 || s.Hits != 19 || s.Misses != 1 || s.Bytes != page {
		t.Fatalf("%d loads, %+v", loads, s)
	}
	bad := errors.New("bad")
	for range 2 {
		_, err := c.get(context.Background(), "b", func(context.Context) (*os.File, *pageindex.Index, error) { return nil, nil, bad })
		if !errors.Is(err, bad) {
			t.Fatal(err)
		}
	}
	// What is in use stays; the rest goes, the least recently used first.
	var held []*Handle
	for i := range 4 {
		if err := c.Put(fmt.Sprint(i), sealed(t, 3*page)); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			h, ok := c.held("0")
			if !ok {
				t.Fatal("not held")
			}
			held = append(held, h)
		}
	}
	for key, want := range map[string]bool{"a": false, "0": true, "1": false, "2": true, "3": true} {
		h, ok := c.held(key)
		if ok != want {
			t.Errorf("%s: %v", key, ok)
		}
		if ok {
			held = append(held, h)
		}
	}
	for _, h := range held {
		h.Release()
	}
	open, err := layer.NewMemfd("test", page)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := c.Put("open", open); !errors.Is(err, layer.ErrWritable) {
		t.Error(err)
	}
}

// A load whose caller gave up does not fail those who wait for it.
func TestCancelledLoad(t *testing.T) {
	c := New(10 * page)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	started := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_, err := c.get(ctx, "a", func(ctx context.Context) (*os.File, *pageindex.Index, error) {
			close(started)
			<-ctx.Done()
			return nil, nil, ctx.Err()
		})
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	<-started
	wg.Go(func() {
		h, err := c.get(context.Background(), "a", func(context.Context) (*os.File, *pageindex.Index, error) { return sealed(t, page), nil, nil })
		if err != nil {
			t.Error(err)
			return
		}
		h.Release()
	})
	cancel()
	wg.Wait()
}
