package kernel

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
)

// digestFile returns the hex SHA-256 and the size of the file at path.
func digestFile(path string) (sum string, size int64, err error) {
	h := sha256.New()
	size, err = hashFile(path, h)
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// md5File returns the hex MD5 of the file at path, to compare it with what dpkg
// has on record; MD5 is all that dpkg keeps.
func md5File(path string) (string, error) {
	h := md5.New()
	_, err := hashFile(path, h)
	return hex.EncodeToString(h.Sum(nil)), err
}

func hashFile(path string, h hash.Hash) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("kernel: open to digest: %w", err)
	}
	defer f.Close()
	n, err := io.Copy(h, f)
	if err != nil {
		return 0, fmt.Errorf("kernel: digest %s: %w", path, err)
	}
	return n, nil
}

func digestBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
