package hot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"thaw/snapshot/layer"
	"thaw/snapshot/pageindex"
	"thaw/snapshot/store"
)

// errMerged says that the snapshot which added a layer has other layers by now, so
// that its index does not tell what the layers of this chain look like.
var errMerged = errors.New("layers were merged since")

// part is a stretch of a chain's layers and the file that they have become.
type part struct {
	span
	h *Handle
}

// builder makes the groups of one chain.
type builder struct {
	cache    *Cache
	resolver Resolver
	chain    *store.Chain
	layers   []store.Layer // above the base
}

// group returns the overlay of the layers of a span: the layer itself, or their merge.
func (b *builder) group(ctx context.Context, s span) (*Handle, error) {
	if s.last-s.first == 1 {
		l := b.layers[s.first]
		return b.cache.get(ctx, l.Key(), func(ctx context.Context) (*os.File, *pageindex.Index, error) {
			f, err := l.Load(ctx, false)
			return f, nil, err
		})
	}
	// As the snapshot that added the last layer sees them: every page that a snapshot
	// above it has from these layers is visible there, so all of them can share it.
	h, err := b.cache.get(ctx, b.key(s), func(ctx context.Context) (*os.File, *pageindex.Index, error) {
		owner, err := b.resolver.Resolve(ctx, b.layers[s.last-1].Snapshot)
		if err != nil {
			return nil, nil, err
		}
		defer owner.Close()
		if !sameLayers(owner.Memory[1:], b.layers[:s.last]) {
			return nil, nil, errMerged
		}
		return b.build(ctx, owner.Index, s)
	})
	if !errors.Is(err, errMerged) {
		return h, err
	}
	// Its own view of them does for this snapshot alone.
	h, err = b.cache.get(ctx, b.key(s)+b.chain.Manifest.ID, func(ctx context.Context) (*os.File, *pageindex.Index, error) {
		return b.build(ctx, b.chain.Index, s)
	})
	if err == nil {
		h.private = true
	}
	return h, err
}

// key names the content of a group.
func (b *builder) key(s span) string {
	h := sha256.New()
	for _, l := range b.layers[s.first:s.last] {
		h.Write([]byte(l.Key()))
	}
	return hex.EncodeToString(h.Sum(nil))
}

func sameLayers(have, want []store.Layer) bool {
	if len(have) != len(want) {
		return false
	}
	for i := range want {
		if have[i].Key() != want[i].Key() {
			return false
		}
	}
	return true
}

// build merges the pages that index has from the layers of s into one file.
func (b *builder) build(ctx context.Context, index *pageindex.Index, s span) (*os.File, *pageindex.Index, error) {
	var parts []part
	defer func() {
		for _, p := range parts {
			p.h.Release()
		}
	}()
	if err := b.parts(ctx, s, &parts); err != nil {
		return nil, nil, err
	}
	for _, p := range parts {
		if !layer.Sealed(p.h.File) {
			return nil, nil, fmt.Errorf("hot: merge of a file that can change: %w", store.ErrInvalid)
		}
	}
	now, err := renumber(index, parts, false)
	if err != nil {
		return nil, nil, err
	}
	merged, moves := pageindex.Compact(now, func(uint16) bool { return false }, pageindex.FirstOverlay)
	pages := merged.Count(func(uint16) bool { return true })
	f, err := layer.NewMemfd("thaw-overlay", int64(pages)*pageindex.PageSize)
	if err != nil {
		return nil, nil, err
	}
	err = layer.Gather(ctx, f, moves, func(source uint16) *os.File { return parts[source-pageindex.FirstOverlay].h.File })
	if err == nil {
		err = layer.Seal(f)
	}
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("hot: merge %d layers: %w", s.last-s.first, err)
	}
	return f, merged, nil
}

// parts appends the largest groups within s that are hot, and single layers for the
// rest: what is merged is copied once, whatever is hot.
func (b *builder) parts(ctx context.Context, s span, parts *[]part) error {
	if s.last-s.first == 1 {
		h, err := b.group(ctx, s)
		if err != nil {
			return err
		}
		*parts = append(*parts, part{s, h})
		return nil
	}
	half := s.first + (s.last-s.first+1)/2
	for _, p := range []span{{s.first, half}, {half, s.last}} {
		if h, ok := b.cache.held(b.key(p)); ok && p.last-p.first > 1 {
			*parts = append(*parts, part{p, h})
			continue
		} else if ok {
			h.Release()
		}
		if err := b.parts(ctx, p, parts); err != nil {
			return err
		}
	}
	return nil
}
