package layer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/snapshot/pageindex"
)

const hugeSize = 2 << 20

// Collapse turns the ranges of 2 MiB of the memfd f that are at least seven tenths
// data (pageindex.HugeFrom) into huge pages (MADV_COLLAPSE, which works with shmem huge
// pages set to "never" too), and returns how many. Mapping it faults a range at a time
// then. A kernel that refuses leaves a range as it is: that is no error.
func Collapse(f *os.File, size int64) (int, error) {
	whole := size / hugeSize * hugeSize
	if whole == 0 {
		return 0, nil
	}
	b, unmap, err := mapAligned(f, int(whole), unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	defer unmap()
	n := 0
	for at := int64(0); at < whole; at += hugeSize {
		full, err := dataPages(f, at, at+hugeSize)
		if err != nil {
			return n, err
		}
		if full < pageindex.HugeFrom {
			continue
		}
		err = unix.Madvise(b[at:at+hugeSize], unix.MADV_COLLAPSE)
		switch {
		case err == nil:
			n++
		case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EBUSY):
			// No huge page is free, or pages are in use: as it was.
		case errors.Is(err, unix.EINVAL):
			return n, nil // a kernel without it
		default:
			return n, fmt.Errorf("layer: collapse: %w", err)
		}
	}
	return n, nil
}

// dataPages counts the pages between two offsets that are not in a hole.
func dataPages(f *os.File, from, to int64) (int, error) {
	n := int64(0)
	for from < to {
		data, err := unix.Seek(int(f.Fd()), from, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) || err == nil && data >= to {
			break
		}
		if err != nil {
			return 0, fmt.Errorf("layer: find data: %w", err)
		}
		hole, err := unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return 0, fmt.Errorf("layer: find a hole: %w", err)
		}
		n += min(hole, to) - data
		from = hole
	}
	return int(n / pageSize), nil
}
