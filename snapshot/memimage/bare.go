package memimage

import (
	"os"

	"thaw/internal/pagemap"
	"thaw/snapshot/pageindex"
)

// Four sets of pages are told apart by what the bare mapping, with nothing
// written, shows of them:
//
//	image has     bare mapping shows
//	base's page   the same                 nothing to do
//	overlay page  the same, if mapped      nothing to do
//	overlay page  another or zeros         own     copied in when laid
//	zeros         another                  hidden  cleared when laid
//
// Own and hidden pages are private right after Lay. When the balloon gives one
// back it is private no more, and shows what the bare mapping has. The mapping is that
// of the image that was laid. For another, to which the machine is rolled back, pages of
// overlays that were mapped then are own or hidden, or the base's and not shown.

// mapped is a run of an overlay that the memory has mapped.
type mapped struct {
	pageindex.Run
	file os.FileInfo
}

// hidden returns the pages that the base has and the image has zeros for.
func (x *Image) hidden() []pagemap.Range {
	return subtract(ranges(x.plan.Base.Runs, nil), ranges(x.plan.Memory.Runs, notZero))
}

// covered returns the pages whose content the bare mapping does not show: own and
// hidden ones, and those for which it shows an overlay that the image does not have there.
func (x *Image) covered() []pagemap.Range {
	own := ranges(x.plan.Memory.Runs, func(r pageindex.Run) bool { return r.Source >= pageindex.FirstOverlay })
	var overlaid []pagemap.Range
	for _, m := range x.mapped {
		overlaid = add(overlaid, m.First, m.End())
	}
	return subtract(union(union(own, overlaid), x.hidden()), x.shown())
}

// shown returns the pages of overlays that the bare mapping shows: at the same place of
// the same file.
func (x *Image) shown() []pagemap.Range {
	var list []pagemap.Range
	runs := x.plan.Memory.Runs
	for _, m := range x.mapped {
		for len(runs) > 0 && runs[0].End() <= m.First {
			runs = runs[1:]
		}
		for _, r := range runs {
			if r.First >= m.End() {
				break
			}
			first, end := max(r.First, m.First), min(r.End(), m.End())
			if r.Source >= pageindex.FirstOverlay && r.At+(first-r.First) == m.At+(first-m.First) && os.SameFile(x.infos[r.Source-pageindex.FirstOverlay], m.file) {
				list = add(list, first, end)
			}
		}
	}
	return list
}

func notZero(r pageindex.Run) bool { return r.Source != pageindex.Zero }

// ranges returns the pages of the runs that keep says yes to, neighbours joined.
func ranges(runs []pageindex.Run, keep func(pageindex.Run) bool) []pagemap.Range {
	var list []pagemap.Range
	for _, r := range runs {
		if keep == nil || keep(r) {
			list = add(list, r.First, r.First+r.Count)
		}
	}
	return list
}

// add appends the pages from first up to but not end, which lie behind list's
// beginning and may touch or overlap its last range.
func add(list []pagemap.Range, first, end uint32) []pagemap.Range {
	if n := len(list); n > 0 {
		last := &list[n-1]
		if have := last.First + last.Count; first <= have {
			last.Count = max(have, end) - last.First
			return list
		}
	}
	return append(list, pagemap.Range{First: first, Count: end - first})
}

// union returns the pages that are in a or in b, both ascending.
func union(a, b []pagemap.Range) []pagemap.Range {
	out := make([]pagemap.Range, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		next := &a
		if len(a) == 0 || len(b) > 0 && b[0].First < a[0].First {
			next = &b
		}
		r := (*next)[0]
		*next = (*next)[1:]
		out = add(out, r.First, r.First+r.Count)
	}
	return out
}

// subtract returns the pages of a that are not in b, both ascending.
func subtract(a, b []pagemap.Range) []pagemap.Range {
	var out []pagemap.Range
	for _, r := range a {
		first, end := r.First, r.First+r.Count
		for len(b) > 0 && b[0].First+b[0].Count <= first {
			b = b[1:]
		}
		for _, s := range b {
			if s.First >= end {
				break
			}
			if s.First > first {
				out = add(out, first, s.First)
			}
			first = max(first, s.First+s.Count)
		}
		if first < end {
			out = add(out, first, end)
		}
	}
	return out
}
