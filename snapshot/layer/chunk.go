package layer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// workers is how many chunks are hashed at a time. Sealing runs beside guests:
// more would take CPUs from them.
const workers = 2

var (
	zeroPage [pageSize]byte
	buffers  = sync.Pool{New: func() any { return new([ChunkSize]byte) }}
)

func isZero(b []byte) bool {
	for len(b) > pageSize {
		if !bytes.Equal(b[:pageSize], zeroPage[:]) {
			return false
		}
		b = b[pageSize:]
	}
	return bytes.Equal(b, zeroPage[:len(b)])
}

// eachChunk calls f for each chunk of f that may hold data, from several
// goroutines, with the chunk's bytes. hole is called for those that are holes.
func eachChunk(ctx context.Context, file *os.File, s *Sum, f func(i int, b []byte) error, hole func(i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(workers, len(s.Chunks)) {
		g.Go(func() error {
			buf := buffers.Get().(*[ChunkSize]byte)
			defer buffers.Put(buf)
			look := dataFinder{file: file}
			for {
				i := int(next.Add(1) - 1)
				if i >= len(s.Chunks) {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := oneChunk(&look, s, i, buf[:], f, hole); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

func oneChunk(look *dataFinder, s *Sum, i int, buf []byte, f func(i int, b []byte) error, hole func(i int) error) error {
	offset, n := s.chunk(i)
	data, err := look.hasData(offset, int64(n))
	if err != nil {
		return err
	}
	if !data {
		return hole(i)
	}
	if err := readFull(look.file, buf[:n], offset); err != nil {
		return err
	}
	return f(i, buf[:n])
}

// dataFinder tells where a file that nobody writes has data, of ranges whose offsets
// ascend. A large hole costs one system call, not one for each range in it.
type dataFinder struct {
	file *os.File
	next int64 // no data lies between the last range and here
}

// hasData says whether any of n bytes at offset are not in a hole. A file that
// ends before them has none; Verify and Load look at its size first.
func (d *dataFinder) hasData(offset, n int64) (bool, error) {
	if d.next > offset {
		return d.next < offset+n, nil
	}
	at, err := unix.Seek(int(d.file.Fd()), offset, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO):
		d.next = math.MaxInt64
		return false, nil
	case errors.Is(err, unix.EINVAL):
		return true, nil // a file system that knows no holes
	case err != nil:
		return false, fmt.Errorf("layer: find data: %w", err)
	}
	d.next = at
	return at < offset+n, nil
}

// readFull fills b from offset. A file that ends before is damaged.
func readFull(f *os.File, b []byte, offset int64) error {
	n, err := f.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF):
		return fmt.Errorf("layer: file ends at %d, %d bytes early: %w", offset+int64(n), len(b)-n, ErrDamaged)
	}
	return fmt.Errorf("layer: read: %w", err)
}

// writeData writes the pages of b that are not zero to offset. The file has holes there.
func writeData(f *os.File, b []byte, offset int64) error {
	for len(b) > 0 {
		zeros := 0
		for zeros < len(b) && isZero(b[zeros:min(zeros+pageSize, len(b))]) {
			zeros = min(zeros+pageSize, len(b))
		}
		b, offset = b[zeros:], offset+int64(zeros)
		data := 0
		for data < len(b) && !isZero(b[data:min(data+pageSize, len(b))]) {
			data = min(data+pageSize, len(b))
		}
		if data == 0 {
			continue
		}
		if _, err := f.WriteAt(b[:data], offset); err != nil {
			return fmt.Errorf("layer: write: %w", err)
		}
		b, offset = b[data:], offset+int64(data)
	}
	return nil
}
