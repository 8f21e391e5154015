package store

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
)

// foldDisks folds each disk's layers above those of the template into one. The state
// file changes with them.
func (g *merge) foldDisks(ctx context.Context) error {
	state, err := g.store.readState(g.old)
	if err != nil {
		return err
	}
	changed := false
	for i, d := range g.old.Disks {
		part := group{below(g.old, d), len(d.Layers)}
		if part.last-part.first < 2 {
			continue
		}
		if state, err = g.foldDisk(ctx, i, part, state); err != nil {
			return fmt.Errorf("store: fold disk %s: %w", d.ID, err)
		}
		changed = true
	}
	if !changed {
		return nil
	}
	if _, err := format.Read(bytes.NewReader(state), format.Limits{}); err != nil {
		return fmt.Errorf("store: state with folded disks: %w", err)
	}
	return g.replaceFile(manifest.StateName, state)
}

// foldDisk makes one layer of those of a group, and returns the state that knows it.
func (g *merge) foldDisk(ctx context.Context, i int, part group, state []byte) ([]byte, error) {
	d := g.old.Disks[i]
	files, closeAll, err := g.store.openLayers(ctx, d.Layers, part)
	defer closeAll()
	if err != nil {
		return nil, err
	}
	ref, err := g.writeLayer(manifest.DiskPrefix+d.ID, func(f *os.File) (*layer.Sum, error) {
		if state, err = g.store.opts.Folder.Fold(ctx, state, d.ID, files, part.first, part.last, f); err != nil {
			return nil, foldError(err)
		}
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		return layer.Measure(ctx, f, info.Size())
	})
	if err != nil {
		return nil, err
	}
	g.next.Disks[i].Layers = append(d.Layers[:part.first:part.first], ref)
	return state, nil
}
