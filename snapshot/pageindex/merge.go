package pageindex

// Merge lays delta over parent: where both have a run, delta's wins. Zero runs of
// the delta hide the parent's and stay in the result, so that two deltas can be
// merged before their parent is; WithoutZero drops them. Neither argument
// changes. The result has the parent's size, or the delta's if parent is nil.
//
// Preconditions: both are valid, and their sources are numbered apart (Renumber).
func Merge(parent, delta *Index) *Index {
	if parent == nil {
		return &Index{Pages: delta.Pages, Runs: append([]Run(nil), delta.Runs...)}
	}
	// A run of the delta inside one of the parent's parts it in two.
	b := Builder{pages: parent.Pages, runs: make([]Run, 0, len(parent.Runs)+2*len(delta.Runs))}
	var free uint32 // first page that is not decided yet
	rest := parent.Runs
	below := func(until uint32) { // takes the parent's runs up to page until
		for len(rest) > 0 && rest[0].First < until {
			r := rest[0]
			if r.End() > free {
				from := max(r.First, free)
				if to := min(r.End(), until); from < to {
					b.add(r.cut(from, to-from))
				}
			}
			if r.End() > until {
				return // the rest of it may come after the delta's run
			}
			rest = rest[1:]
		}
	}
	for _, d := range delta.Runs {
		below(d.First)
		b.add(d)
		free = d.End()
	}
	below(parent.Pages)
	return b.Index()
}

// Renumber returns the index with every overlay's number changed by to; the
// numbers of Zero and Base stay. A delta names its own file FirstOverlay: in a
// chain that file has another place.
//
// Preconditions: to returns FirstOverlay or more.
func (x *Index) Renumber(to func(source uint16) uint16) *Index {
	b := Builder{pages: x.Pages, runs: make([]Run, 0, len(x.Runs))}
	for _, r := range x.Runs {
		if r.Dense() {
			r.Source = to(r.Source)
		}
		b.add(r)
	}
	return b.Index()
}

// WithoutZero returns the index without its Zero runs. What is left means the
// same, as long as nothing lies below it.
func (x *Index) WithoutZero() *Index {
	y := &Index{Pages: x.Pages, Runs: make([]Run, 0, len(x.Runs))}
	for _, r := range x.Runs {
		if r.Source != Zero {
			y.Runs = append(y.Runs, r)
		}
	}
	return y
}

// Move is one copy of Count pages from page From of an overlay to page To of a new file.
type Move struct {
	Source          uint16
	From, To, Count uint32
}

// Compact plans a new dense file that takes the place of every overlay that keep
// does not want to keep. It returns the index with those overlays replaced by
// source into, and the copies that fill the new file, in order of To, without a
// gap. An overlay page that several guest pages share is copied for each of them.
//
// Preconditions: into is FirstOverlay or more, and no kept overlay has that number.
func Compact(x *Index, keep func(source uint16) bool, into uint16) (*Index, []Move) {
	b := Builder{pages: x.Pages, runs: make([]Run, 0, len(x.Runs))}
	var moves []Move
	var to uint32
	for _, r := range x.Runs {
		if r.Dense() && !keep(r.Source) {
			m := Move{Source: r.Source, From: r.At, To: to, Count: r.Count}
			if n := len(moves); n > 0 && moves[n-1].Source == m.Source && moves[n-1].From+moves[n-1].Count == m.From {
				moves[n-1].Count += m.Count
			} else {
				moves = append(moves, m)
			}
			r.Source, r.At = into, to
			to += r.Count
		}
		b.add(r)
	}
	return b.Index(), moves
}
