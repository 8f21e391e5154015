package hot

import (
	"fmt"

	"thaw/snapshot/pageindex"
)

// renumber returns the index with its layers' pages where parts have them: those of
// part i in source FirstOverlay+i. Pages of other sources stay if others is true, and
// are left out if not.
func renumber(x *pageindex.Index, parts []part, others bool) (*pageindex.Index, error) {
	b := pageindex.NewBuilder(x.Pages)
	of := map[uint16]int{} // which part a source has become
	for i, p := range parts {
		for l := p.first; l < p.last; l++ {
			of[uint16(pageindex.FirstOverlay+l)] = i
		}
	}
	next := make([]int, len(parts)) // runs of the parts' indexes that are behind
	for r := range x.All() {
		i, ok := of[r.Source]
		switch {
		case !ok && !others:
			continue
		case !ok:
			if r.Dense() {
				return nil, fmt.Errorf("source %d is in no part: %w", r.Source, pageindex.ErrIndex)
			}
			if err := b.Add(r); err != nil {
				return nil, err
			}
			continue
		}
		r.Source = uint16(pageindex.FirstOverlay + i)
		if err := move(b, r, parts[i].h.item.index, &next[i]); err != nil {
			return nil, err
		}
	}
	return b.Index(), nil
}

// move adds the run with its pages where index has them; nil: where they were.
func move(b *pageindex.Builder, r pageindex.Run, index *pageindex.Index, next *int) error {
	if index == nil {
		return b.Add(r)
	}
	for r.Count > 0 {
		for *next < len(index.Runs) && index.Runs[*next].End() <= r.First {
			*next++
		}
		if *next == len(index.Runs) || index.Runs[*next].First > r.First {
			return fmt.Errorf("page %d is not in its group: %w", r.First, pageindex.ErrIndex)
		}
		in := index.Runs[*next]
		skip := r.First - in.First
		n := min(r.Count, in.Count-skip)
		if err := b.Add(pageindex.Run{First: r.First, Count: n, Source: r.Source, At: in.At + skip}); err != nil {
			return err
		}
		r.First, r.Count = r.First+n, r.Count-n
	}
	return nil
}
