// Package pageindex says where each page of a machine's memory is to be found:
// in the template, in one of the delta layers above it, or nowhere, because it
// is zero.
//
// An index is a list of runs in ascending order. A checkpoint's delta is an
// index whose runs name only what changed:
//
//	template   BBBBBBBBBB......BBBB      B: in the template's file, at the same offset
//	delta           22    0   22         2: in the delta's own file; 0: zero now
//	merged     BBBBB22BBBB....22BBB      what a restore needs, whatever the depth
//
// Merge folds a delta into its parent's index once, when the checkpoint is made.
// A restore reads one index, so its cost follows the bytes and not the length of
// the chain (requirement B3).
//
// Indexes come from jailed VMM processes, from files and from archives: Decode and
// Validate take them for hostile bytes.
package pageindex

import "errors"

// PageSize is the size of a guest page in bytes, the unit of every index.
const PageSize = 4096

// Values of Run.Source.
const (
	Zero         = 0 // nowhere: the page holds zeros
	Base         = 1 // the template's file, at the page's own offset
	FirstOverlay = 2 // the first dense file; FirstOverlay+i is the i-th above it
)

// ErrIndex says that an index is malformed or points outside its files.
var ErrIndex = errors.New("malformed page index")

// Run is a stretch of guest pages that lie together in one source. Pages are
// counted by their offset in the memory file, not by guest physical address.
type Run struct {
	First  uint32 // first guest page
	Count  uint32 // pages, at least 1
	Source uint16 // Zero, Base, or FirstOverlay and up
	At     uint32 // page number in the source's file; Base: First; Zero: 0
}

// End is the guest page after the run's last.
func (r Run) End() uint32 { return r.First + r.Count }

// Dense says whether the run's source is an overlay, whose pages lie in its
// file one after another.
func (r Run) Dense() bool { return r.Source >= FirstOverlay }

// Index is where every page of a memory of Pages pages is. Pages in no run are
// Zero. Values that Decode, Merge or a Builder made are never changed by this
// package, and may be shared.
type Index struct {
	Pages uint32
	Runs  []Run // ascending, no overlap
}

// cut is the part of r from guest page first, at most count pages long.
// Preconditions: first lies in r.
func (r Run) cut(first, count uint32) Run {
	skip := first - r.First
	r.First = first
	r.Count = min(r.Count-skip, count)
	if r.Source != Zero {
		r.At += skip
	}
	return r
}

// joins says whether b goes on exactly where a ends, in memory and in the source.
func joins(a, b Run) bool {
	return a.Source == b.Source && a.End() == b.First && (a.Source == Zero || a.At+a.Count == b.At)
}
