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
func (g *merge) foldDisks(ctx context.Context, folder DiskFolder) error {
	state, err := readFile(g.path(g.old.StateFile()), g.file(g.old.StateFile()))
	if err != nil {
		return err
	}
	changed := false
	for i, d := range g.old.Disks {
		keep := g.below(d)
		if len(d.Layers)-keep < 2 {
			continue
		}
		if state, err = g.foldDisk(ctx, folder, i, keep, state); err != nil {
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

func (g *merge) path(name string) string { return g.dir + "/" + name }

func (g *merge) file(name string) File {
	f, _ := g.old.File(name)
	return f
}

// below is how many of a disk's layers are the template's or outside the store.
func (g *merge) below(d Disk) int {
	base := g.old.Memory[0].Snapshot
	for i, r := range d.Layers {
		if r.External == "" && r.Snapshot != base {
			return i
		}
	}
	return len(d.Layers)
}

func (g *merge) foldDisk(ctx context.Context, folder DiskFolder, i, keep int, state []byte) ([]byte, error) {
	d := g.old.Disks[i]
	var files []*os.File
	defer func() {
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
	}()
	for _, r := range d.Layers {
		f, err := g.store.openVerified(ctx, r)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	tmp, err := layer.NewMemfd("thaw-merge", 0)
	if err != nil {
		return nil, err
	}
	defer tmp.Close()
	state, err = folder.Fold(ctx, state, d.ID, files, keep, tmp)
	if err != nil {
		return nil, err
	}
	info, err := tmp.Stat()
	if err != nil {
		return nil, err
	}
	ref, err := g.writeLayer(ctx, manifest.DiskPrefix+d.ID, tmp, info.Size())
	if err != nil {
		return nil, err
	}
	g.next.Disks[i].Layers = append(d.Layers[:keep:keep], ref)
	return state, nil
}
