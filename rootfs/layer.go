package rootfs

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"thaw/internal/cache"
)

// layerKind is the cache kind of layers; a layer is a directory with a tree and
// layer.json.
const layerKind = "image-layer"

// layerFormat changes when the code that makes layers changes what it makes.
const layerFormat = "1"

// layer is a finished part of an image.
type layer struct {
	dir  string
	key  string
	info layerInfo
}

// layerInfo is layer.json.
type layerInfo struct {
	Packages []Package         `json:"packages"`
	Drift    []Drift           `json:"drift,omitempty"`
	Tools    map[string]string `json:"tools,omitempty"`    // program → version that made it
	Versions map[string]string `json:"versions,omitempty"` // "debian", "python", "node"
}

// tree is the layer's file tree.
func (l layer) tree() string { return filepath.Join(l.dir, "tree") }

// makeLayer returns the layer that parts decide, from the cache or by build,
// which fills tree and returns what it put there.
func makeLayer(ctx context.Context, parts []string, build func(ctx context.Context, dir, tree string) (layerInfo, error)) (layer, error) {
	key := cache.Key(append([]string{layerFormat}, parts...)...)
	dir, err := cache.Get(ctx, layerKind, key, func(ctx context.Context, dir string) error {
		tree := filepath.Join(dir, "tree")
		if err := os.Mkdir(tree, 0o755); err != nil {
			return fmt.Errorf("rootfs: make layer: %w", err)
		}
		info, err := build(ctx, dir, tree)
		if err != nil {
			return err
		}
		if err := writeJSON(filepath.Join(dir, "layer.json"), info); err != nil {
			return err
		}
		return syncFilesystem(dir)
	})
	if err != nil {
		return layer{}, err
	}
	l := layer{dir: dir, key: key}
	return l, readJSON(filepath.Join(dir, "layer.json"), &l.info)
}

// syncFilesystem writes everything out at once. The cache syncs each file of a
// result by itself, which for ten thousand dirty files takes far longer.
func syncFilesystem(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("rootfs: open layer: %w", err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("rootfs: sync layer: %w", err)
	}
	return nil
}

func writeJSON(path string, v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("rootfs: encode %s: %w", filepath.Base(path), err)
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return fmt.Errorf("rootfs: write %s: %w", filepath.Base(path), err)
	}
	return nil
}

func readJSON(path string, v any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("rootfs: read %s: %w", filepath.Base(path), err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return fmt.Errorf("rootfs: parse %s: %w", filepath.Base(path), err)
	}
	return nil
}
