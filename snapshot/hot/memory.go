package hot

import (
	"context"
	"fmt"
	"os"

	"thaw/snapshot/pageindex"
	"thaw/snapshot/store"
)

// MaxOverlays is how many overlays a restore takes.
const MaxOverlays = 8

// Memory is what a restore of a chain maps. Release gives it back to the cache.
type Memory struct {
	Base     *os.File         // sealed; the template's memory
	Overlays []*os.File       // sealed, dense; at most MaxOverlays
	Index    *pageindex.Index // names Base and Overlays

	handles []*Handle
}

// Release gives the files back.
func (m *Memory) Release() {
	for _, h := range m.handles {
		h.Release()
	}
}

// Resolver finds the chain of an ancestor; *store.Store is one.
type Resolver interface {
	Resolve(ctx context.Context, id string) (*store.Chain, error)
}

// Memory brings the memory of a chain into memfds, verified, and returns it with an
// index of them. The chain may be closed afterwards. Errors: store.ErrDamaged and
// others of Resolve, ErrTooLarge.
func (c *Cache) Memory(ctx context.Context, r Resolver, chain *store.Chain) (_ *Memory, err error) {
	m := &Memory{}
	defer func() {
		if err != nil {
			m.Release()
		}
	}()
	base := chain.Memory[0]
	h, err := c.get(ctx, base.Key(), func(ctx context.Context) (*os.File, *pageindex.Index, error) {
		f, err := base.Load(ctx, true)
		return f, nil, err
	})
	if err != nil {
		return nil, err
	}
	m.handles, m.Base = append(m.handles, h), h.File
	b := builder{cache: c, resolver: r, chain: chain, layers: chain.Memory[1:]}
	var parts []part
	for _, s := range spans(len(b.layers), MaxOverlays) {
		h, err := b.group(ctx, s)
		if err != nil {
			return nil, err
		}
		m.handles, m.Overlays = append(m.handles, h), append(m.Overlays, h.File)
		parts = append(parts, part{s, h})
	}
	if m.Index, err = c.renumbered(chain, parts); err != nil {
		return nil, err
	}
	return m, nil
}

// renumbered is the chain's index in terms of its groups. It is kept: which groups
// there are follows from the manifest.
func (c *Cache) renumbered(chain *store.Chain, parts []part) (*pageindex.Index, error) {
	key := chain.Manifest.ID + "/" + chain.Manifest.IndexFile()
	whole := true
	for _, p := range parts {
		whole = whole && !p.h.private
	}
	c.mu.Lock()
	x := c.indexes.get(key)
	c.mu.Unlock()
	if x != nil && whole {
		return x, nil
	}
	x, err := renumber(chain.Index, parts, true)
	if err != nil {
		return nil, fmt.Errorf("hot: index of %s: %w", chain.Manifest.ID, err)
	}
	if whole {
		c.mu.Lock()
		c.indexes.put(key, x)
		c.mu.Unlock()
	}
	return x, nil
}
