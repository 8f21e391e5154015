package pageindex

import "fmt"

// Builder makes an index page by page or run by run, in ascending order, joining
// what goes on where the last run ended.
type Builder struct {
	pages uint32
	runs  []Run
}

// NewBuilder starts an index of a memory of pages pages.
func NewBuilder(pages uint32) *Builder { return &Builder{pages: pages} }

// Add appends a run. It must lie after every run before it and inside the
// memory; the error wraps ErrIndex.
func (b *Builder) Add(r Run) error {
	var after uint64
	if n := len(b.runs); n > 0 {
		after = uint64(b.runs[n-1].First) + uint64(b.runs[n-1].Count)
	}
	x := Index{Pages: b.pages}
	if err := x.checkRun(r, after); err != nil {
		return fmt.Errorf("pageindex: add run: %w: %w", err, ErrIndex)
	}
	b.add(r)
	return nil
}

// add is Add for a run that is known to be right.
func (b *Builder) add(r Run) {
	if n := len(b.runs); n > 0 && joins(b.runs[n-1], r) {
		b.runs[n-1].Count += r.Count
		return
	}
	b.runs = append(b.runs, r)
}

// Index returns what was built. The builder must not be used afterwards.
func (b *Builder) Index() *Index { return &Index{Pages: b.pages, Runs: b.runs} }
