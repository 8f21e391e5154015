package hot

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
)

// Cache holds sealed memfds by the digest of their content. What is in use is never
// dropped; of the rest, the least recently used goes first when it holds more than its
// bytes. It is safe for several goroutines.
type Cache struct {
	max int64

	mu      sync.Mutex
	files   map[string]*item // protected by mu
	idle    *list.List       // of *item, the least recently used first; protected by mu
	bytes   int64            // protected by mu
	stats   Stats            // protected by mu
	indexes indexes          // protected by mu
}

// Stats counts what a cache did.
type Stats struct {
	Bytes        int64 // held now, as the kernel counts them
	Files        int   // held now
	Hits, Misses int64
	Evicted      int64
}

// item is a file of the cache.
//
//	loading ──ready closed──▶ held (refs > 0) ◀──▶ idle (in the list) ──▶ dropped
type item struct {
	key   string
	file  *os.File
	index *pageindex.Index // of a group: where it has which guest page
	bytes int64
	err   error
	refs  int
	place *list.Element
	ready chan struct{}
}

// New returns a cache of at most max bytes.
func New(max int64) *Cache {
	return &Cache{max: max, files: map[string]*item{}, idle: list.New()}
}

// Handle is one use of a file of the cache.
type Handle struct {
	File *os.File // sealed; shared, so it must be read by offset only, and not be closed

	item    *item
	cache   *Cache
	private bool // of one snapshot, not of its layers
	once    sync.Once
}

// Release ends the use. Descriptors that were passed on keep the memory alive.
func (h *Handle) Release() { h.once.Do(func() { h.cache.release(h.item) }) }

// get returns the file of key, made by load if the cache does not hold it. Callers
// for one key load once; the others wait. If loading fails because its own ctx ended,
// a waiter loads again.
func (c *Cache) get(ctx context.Context, key string, load func(context.Context) (*os.File, *pageindex.Index, error)) (*Handle, error) {
	for {
		it, mine := c.take(key)
		if mine {
			c.fill(ctx, it, load)
		}
		select {
		case <-it.ready:
		case <-ctx.Done():
			c.release(it)
			return nil, fmt.Errorf("hot: wait for %.12s: %w", key, ctx.Err())
		}
		if it.err == nil {
			return &Handle{File: it.file, item: it, cache: c}, nil
		}
		c.release(it)
		if mine || ctx.Err() != nil || !isCancelled(it.err) {
			return nil, it.err
		}
	}
}

// take returns the item of key with one more use, and whether the caller must fill it.
func (c *Cache) take(key string) (*item, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it := c.files[key]; it != nil {
		c.stats.Hits++
		c.use(it)
		return it, false
	}
	c.stats.Misses++
	it := &item{key: key, refs: 1, ready: make(chan struct{})}
	c.files[key] = it
	return it, true
}

// held returns the file of key if the cache holds it already.
func (c *Cache) held(key string) (*Handle, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	it := c.files[key]
	if it == nil || it.file == nil {
		return nil, false
	}
	c.use(it)
	return &Handle{File: it.file, item: it, cache: c}, true
}

// use counts one more use. Preconditions: mu is held.
func (c *Cache) use(it *item) {
	it.refs++
	if it.place != nil {
		c.idle.Remove(it.place)
		it.place = nil
	}
}

func (c *Cache) fill(ctx context.Context, it *item, load func(context.Context) (*os.File, *pageindex.Index, error)) {
	f, index, err := load(ctx)
	var n int64
	if err == nil {
		n, err = layer.Resident(f)
	}
	if err == nil && n > c.max {
		err = fmt.Errorf("hot: %d bytes, cache of %d: %w", n, c.max, ErrTooLarge)
	}
	if err != nil && f != nil {
		f.Close()
		f = nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	it.file, it.index, it.err = f, index, err
	if err != nil {
		delete(c.files, it.key)
	} else {
		it.bytes = n
		c.bytes += n
	}
	close(it.ready)
	c.shrink()
}

// release ends one use.
func (c *Cache) release(it *item) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.refs--; it.refs > 0 || it.file == nil {
		return
	}
	it.place = c.idle.PushBack(it)
	c.shrink()
}

// shrink drops idle files until the cache is within its bytes. Preconditions: mu is held.
func (c *Cache) shrink() {
	for c.bytes > c.max && c.idle.Len() > 0 {
		it := c.idle.Remove(c.idle.Front()).(*item)
		delete(c.files, it.key)
		c.bytes -= it.bytes
		c.stats.Evicted++
		it.file.Close()
	}
}

// Put gives the cache a file that it did not load: the memfd that a VMM has just
// written and that was stored under this key. It must be sealed, else the error wraps
// layer.ErrWritable and the file stays the caller's. Otherwise it is the cache's from
// then on. Preconditions: the bytes are those of the key.
func (c *Cache) Put(key string, f *os.File) error {
	if !layer.Sealed(f) {
		return fmt.Errorf("hot: file for %.12s can be changed: %w", key, layer.ErrWritable)
	}
	h, err := c.get(context.Background(), key, func(context.Context) (*os.File, *pageindex.Index, error) { return f, nil, nil })
	if err != nil {
		return err
	}
	if h.File != f {
		f.Close()
	}
	h.Release()
	return nil
}

// Stats returns the counters.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Files = c.bytes, len(c.files)
	return s
}

// Close drops every file that is not in use; what is, goes when it is released.
func (c *Cache) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.max = -1
	c.shrink()
}

// isCancelled says whether a loader gave up because its own caller did: that is
// no reason for those who wait with it.
func isCancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
