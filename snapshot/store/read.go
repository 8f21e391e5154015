package store

import (
	"crypto/sha256"
	"fmt"

	"thaw/snapshot/durable"
	"thaw/snapshot/layer"
)

// sha is the SHA-256 of b in hex.
func sha(b []byte) string { return layer.Digest(sha256.Sum256(b)).String() }

// readFile reads a whole file that must have size bytes and a digest. Errors wrap
// ErrDamaged, or are those of the file.
func readFile(path string, want File) ([]byte, error) {
	b, err := durable.ReadBounded(path, want.Size)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != want.Size || sha(b) != want.Digest {
		return nil, fmt.Errorf("durable: %s of %d bytes: %w", want.Name, len(b), ErrDamaged)
	}
	return b, nil
}
