package layer

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// A chunk may be stored small: compressed, at the chunk's own offset, with a hole behind
// it. Which ones are is nowhere written down: a chunk that begins like a small one, and
// decompresses to what its digest says, is one. All others are plain.
//
//	0  magic "THAWZSTD"   8  bytes of the frame u32   12  CRC-32C of the frame u32
//	16 zstd frame, then zeros
//
// The digest is over the content. The other two make every byte that is stored count.
const (
	smallMagic  = "THAWZSTD"
	smallHeader = len(smallMagic) + 8
	// smallSaves is the part of a chunk that compressing must save.
	smallSaves = 8
)

// smallBelow bounds the layers that are stored small, in bytes: compressing takes longer
// than all else that makes a snapshot durable.
const smallBelow = 4 << 20

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	encoder = sync.OnceValue(func() *zstd.Encoder {
		// It fails for options that do not exist only.
		e, _ := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(workers),
			zstd.WithWindowSize(ChunkSize), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
		return e
	})
	decoder = sync.OnceValue(func() *zstd.Decoder {
		d, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(workers), zstd.WithDecoderMaxMemory(ChunkSize), zstd.WithDecoderLowmem(true))
		return d
	})
)

// Store is how a layer is stored: Copy, or CopySmall.
type Store func(ctx context.Context, dst, src *os.File, size int64) (*Sum, error)

// CopySmall is Copy for layers that Load alone reads: chunks that become much shorter
// are stored compressed, unless the layer is large. dst reads as something else then.
func CopySmall(ctx context.Context, dst, src *os.File, size int64) (*Sum, error) {
	if size > smallBelow {
		return Copy(ctx, dst, src, size)
	}
	return copyTo(ctx, dst, src, size, writeSmall)
}

// writeSmall writes a chunk compressed, if that makes it much shorter.
func writeSmall(f *os.File, b []byte, offset int64) error {
	small := append(make([]byte, 0, len(b)), smallMagic...)
	small = encoder().EncodeAll(b, small[:smallHeader])
	if len(small) > len(b)-len(b)/smallSaves {
		return writeData(f, b, offset)
	}
	frame := small[smallHeader:]
	binary.LittleEndian.PutUint32(small[len(smallMagic):], uint32(len(frame)))
	binary.LittleEndian.PutUint32(small[len(smallMagic)+4:], crc32.Checksum(frame, castagnoli))
	if _, err := f.WriteAt(small, offset); err != nil {
		return fmt.Errorf("layer: write: %w", err)
	}
	return nil
}

// plain calls use with the content of a chunk that is stored as b, if it has the digest
// d. b is hostile.
func plain(b []byte, d Digest, use func(content []byte) error) (ok bool, err error) {
	if frame := frameOf(b); frame != nil {
		buf := buffers.Get().(*[ChunkSize]byte)
		defer buffers.Put(buf)
		out, err := decoder().DecodeAll(frame, buf[:0])
		if err == nil && len(out) == len(b) && digest(out) == d {
			return true, use(out)
		}
	}
	if digest(b) != d {
		return false, nil
	}
	return true, use(b)
}

// frameOf returns the frame of a small chunk that is stored as b; nil: it is none.
func frameOf(b []byte) []byte {
	if len(b) <= smallHeader || string(b[:len(smallMagic)]) != smallMagic {
		return nil
	}
	n, sum := binary.LittleEndian.Uint32(b[len(smallMagic):]), binary.LittleEndian.Uint32(b[len(smallMagic)+4:])
	if n == 0 || uint64(n) > uint64(len(b)-smallHeader) {
		return nil
	}
	frame, rest := b[smallHeader:][:n], b[smallHeader+int(n):]
	if len(rest) > 0 && !isZero(rest) || crc32.Checksum(frame, castagnoli) != sum {
		return nil
	}
	return frame
}
