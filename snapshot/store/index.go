package store

import (
	"fmt"
	"path/filepath"

	"thaw/snapshot/manifest"
	"thaw/snapshot/pageindex"
)

// indexRuns bounds the runs of decoded indexes that are kept: 16 bytes each.
const indexRuns = 1 << 20

// indexCache keeps decoded indexes, the oldest going first. Decoding one of a long
// chain takes longer than the rest of Resolve.
type indexCache struct {
	byFile map[string]*pageindex.Index // by snapshot/name
	order  []string
	runs   int
}

func (c *indexCache) get(key string) *pageindex.Index { return c.byFile[key] }

func (c *indexCache) put(key string, x *pageindex.Index) {
	if c.byFile == nil {
		c.byFile = map[string]*pageindex.Index{}
	}
	if c.byFile[key] != nil {
		return
	}
	c.byFile[key] = x
	c.order = append(c.order, key)
	c.runs += len(x.Runs)
	for c.runs > indexRuns && len(c.order) > 1 {
		c.remove(0)
	}
}

// drop forgets the indexes of a snapshot.
func (c *indexCache) drop(id string) {
	for i := len(c.order) - 1; i >= 0; i-- {
		if c.order[i][:manifest.IDLength] == id {
			c.remove(i)
		}
	}
}

func (c *indexCache) remove(i int) {
	key := c.order[i]
	c.runs -= len(c.byFile[key].Runs)
	delete(c.byFile, key)
	c.order = append(c.order[:i], c.order[i+1:]...)
}

// index returns the snapshot's page index, verified, and checked against the sizes of
// the layers that it names.
func (s *Store) index(m *Manifest) (*pageindex.Index, error) {
	name := m.IndexFile()
	key := m.ID + "/" + name
	s.mu.Lock()
	x := s.indexes.get(key)
	s.mu.Unlock()
	if x != nil {
		return x, nil
	}
	want, _ := m.File(name)
	b, err := readFile(filepath.Join(s.dir(m.ID), name), want)
	if err != nil {
		return nil, err
	}
	if x, err = decodeIndex(m, b); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[m.ID] != nil {
		s.indexes.put(key, x)
	}
	return x, nil
}

// decodeIndex reads the index of a snapshot. Errors wrap ErrDamaged.
func decodeIndex(m *Manifest, b []byte) (*pageindex.Index, error) {
	pages := uint32(m.Machine.MemoryBytes / pageindex.PageSize)
	x, err := pageindex.Decode(b, pages)
	if err != nil {
		return nil, fmt.Errorf("store: index of %s: %w: %w", m.ID, err, ErrDamaged)
	}
	if x.Pages != pages {
		return nil, fmt.Errorf("store: index of %s has %d pages, not %d: %w", m.ID, x.Pages, pages, ErrDamaged)
	}
	var sizes []uint32
	for _, r := range m.Memory[1:] {
		sizes = append(sizes, uint32(r.Size/pageindex.PageSize))
	}
	if err := x.Validate(sizes); err != nil {
		return nil, fmt.Errorf("store: index of %s: %w: %w", m.ID, err, ErrDamaged)
	}
	return x, nil
}
