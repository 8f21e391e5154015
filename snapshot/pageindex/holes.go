package pageindex

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// A restore maps each run of the template, and what lies between is memory that the
// guest gets in huge pages: of so many pages. A hole in which none fits is not worth
// another map.
const hugePage = 512

// collapsed is from how many pages of data on a range of 2 MiB becomes a huge page of the
// template's memory (layer.Collapse).
const collapsed = 410

// FromHoles returns the index of a template whose memory is the sparse file f of
// size bytes, a multiple of PageSize: Base runs where it holds data (SEEK_DATA),
// nothing where it has holes. A hole in which no whole range of 2 MiB lies counts as
// data, and so does what lacks to a range that is four fifths data.
// The file's position changes.
func FromHoles(f *os.File, size int64) (*Index, error) {
	if size < 0 || size%PageSize != 0 || size/PageSize > 1<<32-1 {
		return nil, fmt.Errorf("pageindex: %d bytes of memory: %w", size, ErrIndex)
	}
	x := &Index{Pages: uint32(size / PageSize)}
	for at := int64(0); at < size; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // holes to the end
		}
		if err != nil {
			return nil, fmt.Errorf("pageindex: find data: %w", err)
		}
		if data >= size {
			break
		}
		hole, err := f.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("pageindex: find a hole: %w", err)
		}
		x.addData(data, min(hole, size))
		at = hole
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("pageindex: rewind: %w", err)
	}
	return x, nil
}

// addData appends the pages that hold bytes from to to, or joins them to the last run.
func (x *Index) addData(from, to int64) {
	first, end := whole(uint32(from/PageSize), uint32((to+PageSize-1)/PageSize))
	end = min(end, x.Pages)
	if n := len(x.Runs); n > 0 {
		last := &x.Runs[n-1]
		if free := (last.End()-1)/hugePage + 1; first/hugePage <= free { // the first range that is
			last.Count = max(last.End(), end) - last.First
			return
		}
	}
	x.Runs = append(x.Runs, Run{First: first, Count: end - first, Source: Base, At: first})
}

// whole extends a run of data to the ends of those ranges of 2 MiB that it fills so far
// that they become huge pages: only what is mapped in full is mapped as one.
func whole(first, end uint32) (uint32, uint32) {
	begin, last := first/hugePage*hugePage, (end-1)/hugePage*hugePage
	from, to := first, end
	if min(end, begin+hugePage)-first >= collapsed {
		from = begin
	}
	if end-max(first, last) >= collapsed {
		to = last + hugePage
	}
	return from, to
}
