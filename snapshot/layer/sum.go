package layer

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Digest is a SHA-256.
type Digest [sha256.Size]byte

// String returns the digest in hex.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Sum has a digest for each chunk of a layer. A chunk of zeros has the zero
// Digest, so that holes are neither read nor hashed.
type Sum struct {
	Size   int64 // of the layer, in bytes
	Chunks []Digest
}

// Encoded form, little-endian: magic, size u64, chunk size u32, number of chunks
// u32, then the digests.
const (
	sumMagic  = "THAWSUM1"
	sumHeader = 24
)

// newSum returns a Sum of size bytes of zeros.
func newSum(size int64) *Sum {
	return &Sum{Size: size, Chunks: make([]Digest, chunks(size))}
}

func chunks(size int64) int64 { return (size + ChunkSize - 1) / ChunkSize }

// Encode returns the list in its binary form.
func (s *Sum) Encode() []byte {
	b := make([]byte, sumHeader, sumHeader+len(s.Chunks)*sha256.Size)
	copy(b, sumMagic)
	binary.LittleEndian.PutUint64(b[8:], uint64(s.Size))
	binary.LittleEndian.PutUint32(b[16:], ChunkSize)
	binary.LittleEndian.PutUint32(b[20:], uint32(len(s.Chunks)))
	for _, d := range s.Chunks {
		b = append(b, d[:]...)
	}
	return b
}

// Root is the digest of the encoded list: it names the layer's content.
func (s *Sum) Root() Digest { return sha256.Sum256(s.Encode()) }

// EncodedSize is the length of the encoded list of a layer of size bytes.
func EncodedSize(size int64) int64 { return sumHeader + chunks(size)*sha256.Size }

// DecodeSum reads a list of digests of which root is the digest. Errors wrap ErrDamaged.
func DecodeSum(b []byte, root Digest) (*Sum, error) {
	if sha256.Sum256(b) != root {
		return nil, fmt.Errorf("layer: list of digests is not %s: %w", root, ErrDamaged)
	}
	return parseSum(b)
}

func parseSum(b []byte) (*Sum, error) {
	if len(b) < sumHeader || string(b[:8]) != sumMagic {
		return nil, fmt.Errorf("layer: no list of digests in %d bytes: %w", len(b), ErrDamaged)
	}
	size, chunk := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])
	if size > MaxSize || chunk != ChunkSize {
		return nil, fmt.Errorf("layer: list of digests of %d bytes in chunks of %d: %w", size, chunk, ErrDamaged)
	}
	n := binary.LittleEndian.Uint32(b[20:])
	if int64(n) != chunks(int64(size)) || int64(len(b)) != EncodedSize(int64(size)) {
		return nil, fmt.Errorf("layer: %d digests in %d bytes for a layer of %d: %w", n, len(b), size, ErrDamaged)
	}
	s := &Sum{Size: int64(size), Chunks: make([]Digest, n)}
	for i := range s.Chunks {
		copy(s.Chunks[i][:], b[sumHeader+i*sha256.Size:])
	}
	return s, nil
}

// chunk is the place of chunk i in the layer.
func (s *Sum) chunk(i int) (offset int64, length int) {
	offset = int64(i) * ChunkSize
	return offset, int(min(ChunkSize, s.Size-offset))
}

// digest is the digest of a chunk that reads as b.
func digest(b []byte) Digest {
	if isZero(b) {
		return Digest{}
	}
	return sha256.Sum256(b)
}
