package protect

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"thaw/internal/pagemap"
)

// staging is the copying of pages to a file, one after the other.
type staging struct {
	file  *os.File
	list  []pagemap.Range
	at    []uint32 // place in the file of each range's first page
	done  []uint64 // bit for each place
	next  int      // range that is swept
	page  uint32   // of that range
	total uint32
	buf   []byte
}

func newStaging(list []pagemap.Range, file *os.File) *staging {
	s := &staging{file: file, list: slices.Clone(list), buf: make([]byte, sweepPages*pageSize)}
	for _, r := range s.list {
		s.at = append(s.at, s.total)
		s.total += r.Count
	}
	s.done = make([]uint64, (s.total+63)/64)
	return s
}

func (s *staging) close() {
	if s != nil {
		s.file.Close() // it is the VMM's, and was written without cache
	}
}

// copyOne copies a page, if it is to be and has not been.
func (s *staging) copyOne(page uint32, memory *os.File, start uint64) error {
	i, ok := slices.BinarySearchFunc(s.list, page, func(r pagemap.Range, page uint32) int {
		switch {
		case page < r.First:
			return 1
		case page >= r.First+r.Count:
			return -1
		}
		return 0
	})
	if !ok {
		return nil
	}
	place := s.at[i] + page - s.list[i].First
	if s.isDone(place) {
		return nil
	}
	return s.copy(place, page, 1, memory, start)
}

// copyNext copies some pages that have not been, and says whether there may be more.
func (s *staging) copyNext(memory *os.File, start uint64) (more bool, err error) {
	for s.next < len(s.list) {
		r := s.list[s.next]
		if s.page == r.Count {
			s.next, s.page = s.next+1, 0
			continue
		}
		place := s.at[s.next] + s.page
		if s.isDone(place) {
			s.page++
			continue
		}
		n := uint32(1)
		for n < sweepPages && s.page+n < r.Count && !s.isDone(place+n) {
			n++
		}
		page := r.First + s.page
		s.page += n
		return true, s.copy(place, page, n, memory, start)
	}
	return false, nil
}

// copy copies n pages. They are protected, or nobody can have written them yet.
func (s *staging) copy(place, page, n uint32, memory *os.File, start uint64) error {
	b := s.buf[:n*pageSize]
	at := int64(start + uint64(page)*pageSize)
	if k, err := unix.Preadv2(int(memory.Fd()), [][]byte{b}, at, 0); err != nil || k != len(b) {
		return fmt.Errorf("protect: read %d pages of the machine: %d bytes: %w", n, k, failed(err))
	}
	if k, err := unix.Pwritev2(int(s.file.Fd()), [][]byte{b}, int64(place)*pageSize, 0); err != nil || k != len(b) {
		return fmt.Errorf("protect: write %d pages: %d bytes: %w", n, k, failed(err))
	}
	for i := range n {
		s.done[(place+i)/64] |= 1 << ((place + i) % 64)
	}
	return nil
}

// failed is the error of a call that has done less than asked for.
func failed(err error) error {
	if err == nil {
		return unix.ENOSPC
	}
	return err
}

func (s *staging) isDone(place uint32) bool { return s.done[place/64]>>(place%64)&1 != 0 }
