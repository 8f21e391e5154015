package layer

import (
	"context"
	"fmt"
	"os"
)

// Copy writes the first size bytes of src to dst, which must be empty, with holes
// for zero pages, and returns the digests of what it wrote. src may be read to its
// end only. It does not sync dst.
//
// An error wraps ErrDamaged if src is shorter, and is otherwise that of a file:
// ENOSPC among them.
func Copy(ctx context.Context, dst, src *os.File, size int64) (*Sum, error) {
	return copyTo(ctx, dst, src, size, writeData)
}

// copyTo is Copy with a function that writes a chunk which is not zero.
func copyTo(ctx context.Context, dst, src *os.File, size int64, write func(f *os.File, b []byte, offset int64) error) (*Sum, error) {
	if err := checkSize(src, size, false); err != nil {
		return nil, err
	}
	if err := dst.Truncate(size); err != nil {
		return nil, fmt.Errorf("layer: size copy: %w", err)
	}
	s := newSum(size)
	err := eachChunk(ctx, src, s, func(i int, b []byte) error {
		s.Chunks[i] = digest(b)
		if s.Chunks[i] == (Digest{}) {
			return nil
		}
		return write(dst, b, int64(i)*ChunkSize)
	}, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Measure returns the digests of the first size bytes of f.
func Measure(ctx context.Context, f *os.File, size int64) (*Sum, error) {
	if err := checkSize(f, size, false); err != nil {
		return nil, err
	}
	s := newSum(size)
	err := eachChunk(ctx, f, s, func(i int, b []byte) error {
		s.Chunks[i] = digest(b)
		return nil
	}, func(int) error { return nil })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Verify reads the layer f and compares it with its digests. Errors wrap
// ErrDamaged, or are those of the file.
func Verify(ctx context.Context, f *os.File, s *Sum) error {
	return check(ctx, f, s, func(int, []byte) error { return nil })
}

// check calls use with each chunk that is not zero, plain, once it is verified.
func check(ctx context.Context, f *os.File, s *Sum, use func(i int, b []byte) error) error {
	if err := checkSize(f, s.Size, true); err != nil {
		return err
	}
	return eachChunk(ctx, f, s, func(i int, b []byte) error {
		ok, err := plain(b, s.Chunks[i], func(b []byte) error {
			if s.Chunks[i] == (Digest{}) {
				return nil
			}
			return use(i, b)
		})
		if !ok {
			return fmt.Errorf("layer: chunk %d: %w", i, ErrDamaged)
		}
		return err
	}, func(i int) error {
		if s.Chunks[i] != (Digest{}) {
			return fmt.Errorf("layer: chunk %d is a hole: %w", i, ErrDamaged)
		}
		return nil
	})
}

// checkSize says whether f holds size bytes, exactly or at least.
func checkSize(f *os.File, size int64, exactly bool) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("layer: stat: %w", err)
	}
	if size < 0 || size > MaxSize || info.Size() < size || exactly && info.Size() != size {
		return fmt.Errorf("layer: file of %d bytes, not %d: %w", info.Size(), size, ErrDamaged)
	}
	return nil
}
