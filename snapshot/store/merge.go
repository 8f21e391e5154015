package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"thaw/snapshot/durable"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
	"thaw/snapshot/pageindex"
)

// Merge folds the layers of memory above the template into one that belongs to the
// checkpoint itself. Restores give the same bytes as before. Children keep working:
// the checkpoint's old layer stays as long as one of them names it.
//
// With a DiskFolder, disks are folded too. The checkpoint then needs the template
// alone, which becomes its parent, and what was between them can be deleted.
//
//	before   T ◀─ A ◀─ B ◀─ C ◀─ D         C: T, A, B, C
//	after    T ◀─ A ◀─ B    C ◀─ D         C: T, C.m1     D: T, A, B, C, D as before
//	         ▲──────────────┘
func (s *Store) Merge(ctx context.Context, id string) (*Manifest, error) {
	release, m, err := s.hold(id)
	if err != nil {
		return nil, err
	}
	defer release()
	if m.Kind != Checkpoint {
		return nil, fmt.Errorf("store: merge template %s: %w", id, ErrInvalid)
	}
	g := merge{store: s, dir: s.dir(id), old: m, next: *m}
	g.next.Files, g.next.Disks = slices.Clone(m.Files), slices.Clone(m.Disks)
	if err := g.run(ctx); err != nil {
		g.undo()
		return nil, err
	}
	if len(g.made) == 0 {
		return m, nil // nothing to fold
	}
	g.next.Files = s.withoutUnneeded(&g.next)
	err = s.at(stepMergeFiles)
	decided := false
	if err == nil {
		decided, err = s.replaceManifest(&g.next)
	}
	if err != nil && !decided {
		g.undo()
	}
	if err != nil {
		return nil, err
	}
	if !s.isRead(id) { // else trimAll does it later
		if err := s.sweepSnapshot(&g.next); err != nil {
			return nil, err
		}
	}
	return &g.next, s.at(stepMergeSwept)
}

// merge is one merge at work. Its new files lie beside the old ones, under new names.
type merge struct {
	store *Store
	dir   string
	old   *Manifest
	next  Manifest
	made  []string // files
}

func (g *merge) run(ctx context.Context) error {
	if len(g.old.Memory) > 2 {
		if err := g.foldMemory(ctx); err != nil {
			return err
		}
	}
	if g.store.opts.Folder != nil {
		if err := g.foldDisks(ctx); err != nil {
			return err
		}
	}
	if len(g.made) == 0 {
		return nil
	}
	g.adopt()
	return durable.SyncDir(g.dir)
}

// foldMemory writes the pages that the index names, and only those, into one layer.
func (g *merge) foldMemory(ctx context.Context) error {
	x, err := g.store.index(g.old)
	if err != nil {
		return err
	}
	folded, moves := pageindex.Compact(x, func(uint16) bool { return false }, pageindex.FirstOverlay)
	g.next.Memory = g.old.Memory[:1:1]
	if len(moves) > 0 {
		ref, err := g.copyPages(ctx, moves)
		if err != nil {
			return err
		}
		g.next.Memory = append(g.next.Memory, ref)
	}
	return g.replaceFile(manifest.IndexName, folded.Encode())
}

// copyPages makes a layer of pages of the others, which are verified on their way into memory.
func (g *merge) copyPages(ctx context.Context, moves []pageindex.Move) (Ref, error) {
	files := map[uint16]*os.File{}
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	last := moves[len(moves)-1]
	size := int64(last.To+last.Count) * pageindex.PageSize
	tmp, err := layer.NewMemfd("thaw-merge", size)
	if err != nil {
		return Ref{}, err
	}
	defer tmp.Close()
	for _, m := range moves {
		f := files[m.Source]
		if f == nil {
			r := g.old.Memory[int(m.Source)-pageindex.FirstOverlay+1]
			if f, err = (Layer{Ref: r, dir: g.store.dir(r.Snapshot)}).Load(ctx, false); err != nil {
				return Ref{}, err
			}
			files[m.Source] = f
		}
		if err := copyPages(tmp, f, m); err != nil {
			return Ref{}, err
		}
	}
	return g.writeLayer(manifest.MemoryName, func(f *os.File) (*layer.Sum, error) { return layer.CopySmall(ctx, f, tmp, size) })
}

// writeLayer writes a new layer of the snapshot, and its digests, which fill returns.
func (g *merge) writeLayer(base string, fill func(f *os.File) (*layer.Sum, error)) (Ref, error) {
	name := g.next.NextName(base)
	f, err := g.create(name)
	if err != nil {
		return Ref{}, err
	}
	sum, err := fill(f)
	if err := durable.Finish(f, err); err != nil {
		return Ref{}, err
	}
	if err := g.store.at(stepMergeLayer); err != nil {
		return Ref{}, err
	}
	g.made = append(g.made, name+manifest.SumSuffix)
	if err := durable.WriteFile(filepath.Join(g.dir, name+manifest.SumSuffix), sum.Encode()); err != nil {
		return Ref{}, err
	}
	root := sum.Root().String()
	g.next.Files = append(g.next.Files, File{Name: name, Size: sum.Size, Digest: root, Layer: true})
	return Ref{Snapshot: g.old.ID, File: name, Size: sum.Size, Digest: root}, nil
}

func (g *merge) create(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(g.dir, name), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: make file: %w", durable.Full(err))
	}
	g.made = append(g.made, name)
	return f, nil
}

// replaceFile writes a small file that takes the place of the one of this base name.
func (g *merge) replaceFile(base string, b []byte) error {
	name := g.next.NextName(base)
	g.made = append(g.made, name)
	if err := durable.WriteFile(filepath.Join(g.dir, name), b); err != nil {
		return err
	}
	old := g.next.Only(base)
	for i, f := range g.next.Files {
		if f.Name == old {
			g.next.Files[i] = File{Name: name, Size: int64(len(b)), Digest: sha(b)}
		}
	}
	return nil
}

// adopt makes the template the parent of a snapshot that needs nothing else.
func (g *merge) adopt() {
	base := g.next.Memory[0].Snapshot
	own := true
	g.next.EachRef(func(r Ref) {
		own = own && (r.External != "" || r.Snapshot == base || r.Snapshot == g.next.ID)
	})
	if !own || g.next.Parent == base {
		return
	}
	for _, r := range g.old.Memory[1:] {
		if r.Snapshot != g.old.ID && !slices.Contains(g.next.Merged, r.Snapshot) {
			g.next.Merged = append(slices.Clone(g.next.Merged), r.Snapshot)
		}
	}
	g.next.Parent, g.next.Record.Depth = base, 1
}

// undo removes what a merge that failed has made.
func (g *merge) undo() {
	for _, name := range g.made {
		os.Remove(filepath.Join(g.dir, name))
	}
}
