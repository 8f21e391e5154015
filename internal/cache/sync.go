package cache

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// syncTree makes every file and directory under root durable, so that the
// rename that follows can never show a result with holes after a power cut.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("cache: walk result: %w", err)
		}
		if !d.IsDir() && !d.Type().IsRegular() {
			return nil // links and nodes live in their directory
		}
		return syncFile(p)
	})
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("cache: open for sync: %w", err)
	}
	err = f.Sync()
	f.Close()
	if err != nil {
		return fmt.Errorf("cache: sync: %w", err)
	}
	return nil
}
