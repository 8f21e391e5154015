package store

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// crowd is a store with machines that save, fork, merge and delete at the same time,
// while it is collected.
type crowd struct {
	t *testing.T
	s *Store

	mu    sync.Mutex
	known map[string]*machine // what each snapshot has; protected by mu
	order []string            // protected by mu
}

func (c *crowd) note(id string, m *machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[id] = m
	c.order = append(c.order, id)
}

// pick returns one of the snapshots that there were a moment ago.
func (c *crowd) pick(rng *rand.Rand) (string, *machine) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.order = slices.DeleteFunc(c.order, func(id string) bool { _, err := c.s.Get(id); return err != nil })
	id := c.order[rng.IntN(len(c.order))]
	return id, c.known[id]
}

// check fails if a snapshot that is held has not what it must have.
func (c *crowd) check(id string, want *machine) {
	c.t.Helper()
	if _, err := c.s.Get(id); err != nil {
		c.t.Errorf("lost while it was held: %v", err)
		return
	}
	chain, err := c.s.Resolve(context.Background(), id)
	if err != nil {
		c.t.Errorf("cannot be restored while it is held: %v", err)
		return
	}
	defer chain.Close()
	var files []*os.File
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	for _, l := range chain.Memory {
		f, err := l.Load(context.Background(), false)
		if err != nil {
			c.t.Errorf("layer of an open chain: %v", err)
			return
		}
		files = append(files, f)
	}
	got := make([]byte, len(want.mem))
	for r := range chain.Index.All() {
		if _, err := files[r.Source-1].ReadAt(got[r.First*page:r.End()*page], int64(r.At)*page); err != nil {
			c.t.Error(err)
			return
		}
	}
	if !bytes.Equal(got, want.mem) {
		c.t.Errorf("memory of %s differs", id)
	}
	top := chain.Disks[1].Files[len(chain.Disks[1].Files)-1]
	disk := make([]byte, len(want.disk)+1)
	if n, _ := top.ReadAt(disk, 0); string(disk[:n]) != string(want.disk) {
		c.t.Errorf("disk of %s differs", id)
	}
}

// allowed are the errors with which a store refuses what another has made impossible.
func (c *crowd) allowed(what string, err error, also ...error) bool {
	c.t.Helper()
	if err == nil {
		return true
	}
	for _, e := range append(also, ErrNotFound, ErrInUse) {
		if errors.Is(err, e) {
			return false
		}
	}
	c.t.Errorf("%s: %v", what, err)
	return false
}

// live is one machine: it forks a snapshot, holds it, and saves checkpoints on it.
func (c *crowd) live(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	id, from := c.pick(rng)
	lease, err := c.s.Lease(id)
	if !c.allowed("fork", err) {
		return
	}
	m := from.fork(seed)
	for range 1 + rng.IntN(3) {
		m.run()
		next, err := m.save(c.s, id)
		if !c.allowed("save", err) {
			break
		}
		saved := m.fork(0)
		held, err := c.s.Lease(next)
		if c.note(next, saved); !c.allowed("hold", err) {
			break // collected since: nobody held it
		}
		c.check(id, from) // as a rollback would find it
		lease.Release()
		lease, id, from = held, next, saved
	}
	c.check(id, from)
	lease.Release()
}

func (c *crowd) disturb(rng *rand.Rand) {
	ctx := context.Background()
	id, _ := c.pick(rng)
	switch rng.IntN(6) {
	case 0:
		c.allowed("delete", c.s.Delete(id, false), ErrChildren)
	case 1:
		c.allowed("cascade", c.s.Delete(id, true))
	case 2, 3:
		_, err := c.s.Merge(ctx, id)
		c.allowed("merge", err, ErrInvalid)
	case 4:
		pin := rng.IntN(2) == 0
		_, err := c.s.Annotate(id, func(m *Manifest) { m.Pinned = pin })
		c.allowed("annotate", err)
	default:
		used := c.s.Used()
		_, err := c.s.GC(ctx, Watermark{High: used * 3 / 4, Low: used / 2}, func(m *Manifest) bool { return m.Kind == Template })
		c.allowed("collect", err)
	}
}

// Whatever goes on at the same time, what is held stays, and stays as it was; what was
// collected is gone; and the next daemon finds a store that is whole.
func TestCrowd(t *testing.T) {
	c := &crowd{t: t, s: open(t, memoryDir(t)), known: map[string]*machine{}}
	m := newMachine(t, 71)
	base := m.mustSave(c.s, "")
	c.note(base, m.fork(0))
	if _, err := c.s.Annotate(base, func(m *Manifest) { m.Pinned = true }); err != nil {
		t.Fatal(err)
	}
	held, err := c.s.Lease(base)
	if err != nil {
		t.Fatal(err)
	}
	rounds := 20
	if testing.Short() {
		rounds = 8
	}
	var machines, others sync.WaitGroup
	for i := range 4 {
		machines.Go(func() {
			for n := range rounds {
				c.live(uint64(1 + i*1000 + n))
			}
		})
	}
	stop := make(chan struct{})
	for i := range 2 {
		others.Go(func() {
			for rng := rand.New(rand.NewPCG(uint64(i), 6)); ; {
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Millisecond):
					c.disturb(rng)
				}
			}
		})
	}
	machines.Wait()
	close(stop)
	others.Wait()
	held.Release()
	for _, i := range c.s.List("") {
		if i.Leases != 0 {
			t.Errorf("%s has %d leases left", i.ID, i.Leases)
		}
	}
	if _, err := c.s.GC(context.Background(), Watermark{High: 1 << 40, Low: 1 << 40}, nil); err != nil {
		t.Fatal(err)
	}
	clean(t, c.s)
	left := len(c.s.List(""))
	c.s = reopen(t, c.s)
	clean(t, c.s)
	list := c.s.List("")
	if len(list) != left {
		t.Errorf("%d snapshots, %d after reopening", left, len(list))
	}
	for _, i := range list {
		if i.Err != nil {
			t.Error(i.Err)
			continue
		}
		c.check(i.ID, c.known[i.ID])
	}
	t.Logf("%d snapshots were saved, %d are left", len(c.known), left)
}
