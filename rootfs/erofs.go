package rootfs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"github.com/erofs/go-erofs"
)

// writeEROFS writes t as an EROFS image to path and returns its SHA-256 and its
// size in bytes.
//
// It is uncompressed: a guest reads it through the page cache that all machines
// on the host share, and unpacking would be paid in every one of them. Content
// lies in the order of a walk by name, so what a package reads at its import is
// close together; inodes and directories follow in one run. The superblock's time
// equals every file's, which makes all inodes the short kind (32 bytes). UUID and
// volume name stay empty: nothing looks for the image by them.
func writeEROFS(t *tree, path string) (sum string, size int64, err error) {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o444)
	if err != nil {
		return "", 0, fmt.Errorf("rootfs: create image: %w", err)
	}
	defer func() {
		if cerr := out.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("rootfs: close image: %w", cerr)
		}
	}()
	w := erofs.Create(out, erofs.WithBuildTime(uint64(t.mtime.Unix()), 0))
	if err := w.CopyFrom(t); err != nil {
		return "", 0, fmt.Errorf("rootfs: write image: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", 0, fmt.Errorf("rootfs: write image: %w", err)
	}
	if _, err := out.Seek(0, io.SeekStart); err != nil {
		return "", 0, fmt.Errorf("rootfs: read image back: %w", err)
	}
	h := sha256.New()
	if size, err = io.Copy(h, out); err != nil {
		return "", 0, fmt.Errorf("rootfs: read image back: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// writerVersion names the EROFS writer, which is one of an image's inputs.
func writerVersion() string {
	const module = "github.com/erofs/go-erofs"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}
