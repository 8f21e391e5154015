package layer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// Packed is how many bytes Pack writes.
func (s *Sum) Packed() int64 {
	var n int64
	for i, d := range s.Chunks {
		if d != (Digest{}) {
			_, length := s.chunk(i)
			n += int64(length)
		}
	}
	return n
}

// Pack writes the layer's chunks that are not zero to w, one after another, each
// verified before. Errors wrap ErrDamaged, or are those of f or w.
func Pack(ctx context.Context, w io.Writer, f *os.File, s *Sum) error {
	if err := checkSize(f, s.Size, true); err != nil {
		return err
	}
	return eachPacked(ctx, s, func(i int, b []byte, offset int64) error {
		if err := readFull(f, b, offset); err != nil {
			return err
		}
		ok, err := plain(b, s.Chunks[i], func(b []byte) error {
			if _, err := w.Write(b); err != nil {
				return fmt.Errorf("layer: write packed: %w", err)
			}
			return nil
		})
		if !ok {
			return fmt.Errorf("layer: chunk %d: %w", i, ErrDamaged)
		}
		return err
	})
}

// Unpack fills the empty file f from what Pack wrote, verifying each chunk before it
// is written, and leaves r where the layer ends. Errors wrap ErrDamaged, or are those
// of r or f.
func Unpack(ctx context.Context, f *os.File, r io.Reader, s *Sum) error {
	if err := f.Truncate(s.Size); err != nil {
		return fmt.Errorf("layer: size file: %w", err)
	}
	return eachPacked(ctx, s, func(i int, b []byte, offset int64) error {
		if _, err := io.ReadFull(r, b); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("layer: packed layer ends in chunk %d: %w", i, ErrDamaged)
		} else if err != nil {
			return fmt.Errorf("layer: read packed: %w", err)
		}
		if digest(b) != s.Chunks[i] {
			return fmt.Errorf("layer: chunk %d: %w", i, ErrDamaged)
		}
		return writeData(f, b, offset)
	})
}

// eachPacked calls f, with a buffer, for each chunk that is not zero.
func eachPacked(ctx context.Context, s *Sum, f func(i int, b []byte, offset int64) error) error {
	buf := buffers.Get().(*[ChunkSize]byte)
	defer buffers.Put(buf)
	for i, d := range s.Chunks {
		if d == (Digest{}) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		offset, n := s.chunk(i)
		if err := f(i, buf[:n], offset); err != nil {
			return err
		}
	}
	return nil
}
