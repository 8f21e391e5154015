package pageindex

import (
	"iter"
	"slices"
	"sort"
)

// Lookup returns the run that holds page. Without one the page is zero.
func (x *Index) Lookup(page uint32) (Run, bool) {
	i := x.search(page)
	if i == len(x.Runs) || x.Runs[i].First > page {
		return Run{}, false
	}
	return x.Runs[i], true
}

// search is the place of the first run that ends after page.
func (x *Index) search(page uint32) int {
	return sort.Search(len(x.Runs), func(i int) bool { return x.Runs[i].End() > page })
}

// All yields every run in ascending order.
func (x *Index) All() iter.Seq[Run] { return slices.Values(x.Runs) }

// Range yields the runs of count pages from first, cut to that range.
func (x *Index) Range(first, count uint32) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		end := uint64(first) + uint64(count)
		for _, r := range x.Runs[x.search(first):] {
			if uint64(r.First) >= end {
				return
			}
			from := max(r.First, first)
			if !yield(r.cut(from, uint32(min(end-uint64(from), uint64(r.Count))))) {
				return
			}
		}
	}
}

// Full yields runs that cover every page of the memory: those of the index, and
// Zero runs for what lies between them.
func (x *Index) Full() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		var at uint32
		for _, r := range x.Runs {
			if at < r.First && !yield(Run{First: at, Count: r.First - at}) {
				return
			}
			if !yield(r) {
				return
			}
			at = r.End()
		}
		if at < x.Pages {
			yield(Run{First: at, Count: x.Pages - at})
		}
	}
}

// Use is how many guest pages lie in one source.
type Use struct {
	Source uint16
	Pages  uint32
	Runs   uint32
}

// Sources lists what the index's runs use, by ascending source. Zero is listed if
// the index has Zero runs.
func (x *Index) Sources() []Use {
	at := map[uint16]int{}
	var uses []Use
	for _, r := range x.Runs {
		i, ok := at[r.Source]
		if !ok {
			i = len(uses)
			at[r.Source] = i
			uses = append(uses, Use{Source: r.Source})
		}
		uses[i].Pages += r.Count
		uses[i].Runs++
	}
	slices.SortFunc(uses, func(a, b Use) int { return int(a.Source) - int(b.Source) })
	return uses
}

// Count is how many guest pages have a run for which want says yes.
func (x *Index) Count(want func(source uint16) bool) uint32 {
	var n uint32
	for _, r := range x.Runs {
		if want(r.Source) {
			n += r.Count
		}
	}
	return n
}
