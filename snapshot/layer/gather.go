package layer

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/snapshot/pageindex"
)

// maxVector is how many pieces one writev takes (UIO_MAXIOV).
const maxVector = 1024

// Gather carries out moves, which fill the file to from its start, out of memfds by
// source. They are mapped, so that a thousand pieces are one system call.
//
// Preconditions: the memfds are sealed, so that they cannot shrink under the mapping, and
// the moves lie inside them.
func Gather(ctx context.Context, to *os.File, moves []pageindex.Move, from func(source uint16) *os.File) error {
	maps := map[uint16][]byte{}
	defer func() {
		for _, b := range maps {
			unix.Munmap(b)
		}
	}()
	var vector [][]byte
	var at, n int64
	flush := func() error {
		wrote, err := unix.Pwritev(int(to.Fd()), vector, at)
		if err == nil && int64(wrote) != n {
			err = unix.ENOSPC
		}
		if err != nil {
			return fmt.Errorf("layer: write pages: %w", err)
		}
		at, n, vector = at+n, 0, vector[:0]
		return ctx.Err()
	}
	for _, m := range moves {
		b, err := mapped(maps, m.Source, from)
		if err != nil {
			return err
		}
		piece := b[int64(m.From)*pageindex.PageSize:][:int64(m.Count)*pageindex.PageSize]
		vector, n = append(vector, piece), n+int64(len(piece))
		if len(vector) == maxVector || n > 64<<20 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if len(vector) > 0 {
		return flush()
	}
	return nil
}

// Resident is how many bytes of memory a memfd takes.
func Resident(f *os.File) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("layer: look at memfd: %w", err)
	}
	return st.Blocks * 512, nil
}

// mapped returns the mapping of a source, made the first time.
func mapped(maps map[uint16][]byte, source uint16, from func(uint16) *os.File) ([]byte, error) {
	if b, ok := maps[source]; ok {
		return b, nil
	}
	f := from(source)
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("layer: look at memfd: %w", err)
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("layer: map memfd: %w", err)
	}
	maps[source] = b
	return b, nil
}
