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

// HugeFrom is from how many pages of data on, of its 512, a range of 2 MiB becomes a huge
// page of the template's memory (layer.Collapse). What was a hole in it is memory then: at
// this share at most 154 pages. The block of the tuned kernel's read-only data has 373.
const HugeFrom = 358

// FromHoles returns the index of a template whose memory is the sparse file f of
// size bytes, a multiple of PageSize: Base runs where it holds data (SEEK_DATA),
// nothing where it has holes. A hole in which no whole range of 2 MiB lies counts as
// data, and so does then what lacks to a range that is seven tenths data (HugeFrom).
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
	first, end := uint32(from/PageSize), uint32((to+PageSize-1)/PageSize)
	if n := len(x.Runs); n > 0 {
		last := x.Runs[n-1]
		free := (last.End()-1)/hugePage + 1 // the first range of 2 MiB in which the last run has nothing
		if first/hugePage <= free {
			first, end = last.First, max(last.End(), end)
			x.Runs = x.Runs[:n-1]
		}
	}
	first, end = whole(first, end)
	end = min(end, x.Pages)
	x.Runs = append(x.Runs, Run{First: first, Count: end - first, Source: Base, At: first})
}

// whole extends a run of data to the ends of those ranges of 2 MiB that it fills so far
// that they become huge pages: only what is mapped in full is mapped as one.
func whole(first, end uint32) (uint32, uint32) {
	begin, last := first/hugePage*hugePage, (end-1)/hugePage*hugePage
	from, to := first, end
	if min(end, begin+hugePage)-first >= HugeFrom {
		from = begin
	}
	if end-max(first, last) >= HugeFrom {
		to = last + hugePage
	}
	return from, to
}
