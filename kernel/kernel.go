// Package kernel makes the guest kernels that Thaw boots.
//
// There are two. Tuned is compiled from Debian's linux-source-6.12 with this
// folder's configuration and patch: no modules, fast to boot, one image for
// every kind of host. Stock is Debian's 6.12 cloud kernel, unmodified, with the
// few modules that a guest needs. Both are kept in the cache by a digest of
// what decides them, so that a second call is a look-up which asks neither apt
// nor the network for anything but facts that are on this machine already.
package kernel

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"thaw/internal/cache"
)

// Names of the kernels.
const (
	NameTuned = "tuned"
	NameStock = "stock"
)

// Files of a cache entry.
const (
	fileKernel   = "vmlinux"
	fileManifest = "manifest.json"
	fileConfig   = "config"
	dirModules   = "modules"
	// fileOrder is in the modules folder: file names, one a line, each after
	// the modules it depends on.
	fileOrder = "modules.order"
)

// cacheKind is the cache's name for kernels.
const cacheKind = "kernel"

// Kernel is a guest kernel in the cache.
type Kernel struct {
	// Path is the uncompressed ELF kernel.
	Path string
	// ConfigPath is the complete configuration that it was built with.
	ConfigPath string
	// ModulesDir holds the modules of a stock kernel; empty for a tuned one.
	ModulesDir string
	Manifest   Manifest
}

// Manifest records what a kernel was made from. Digests are hex SHA-256.
type Manifest struct {
	Name string `json:"name"`
	// Version is the kernel's release, as uname -r prints it in the guest.
	Version string `json:"version"`
	// Package is the Debian package that source or binary came from.
	Package Package `json:"package"`
	// ConfigSHA256 is of the complete configuration.
	ConfigSHA256 string `json:"config_sha256"`
	// FragmentSHA256 is of this folder's configuration, PatchSHA256 of its patches,
	// one after the other, Compiler and Linker the first lines of their --version.
	// Tuned only.
	FragmentSHA256 string `json:"fragment_sha256,omitempty"`
	PatchSHA256    string `json:"patch_sha256,omitempty"`
	Compiler       string `json:"compiler,omitempty"`
	Linker         string `json:"linker,omitempty"`
	// Recipe counts changes of how the kernel is made that no digest shows.
	Recipe int `json:"recipe"`
	// SHA256 and Size (bytes) are of vmlinux.
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// Modules are in load order. Stock only.
	Modules []Module `json:"modules,omitempty"`
}

// Package is a Debian package.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Digest identifies its content: "sha256:" of the package file, or
	// "md5:" of the source archive as the installed package lists it.
	Digest string `json:"digest"`
}

// Module is a kernel module in ModulesDir.
type Module struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// ModulePaths returns the paths of the modules, in the order in which they can
// be loaded.
func (k *Kernel) ModulePaths() []string {
	paths := make([]string, len(k.Manifest.Modules))
	for i, m := range k.Manifest.Modules {
		paths[i] = filepath.Join(k.ModulesDir, m.File)
	}
	return paths
}

// Verify reads the kernel and its modules and compares them with the manifest.
func (k *Kernel) Verify() error {
	check := func(path, want string, size int64) error {
		got, n, err := digestFile(path)
		if err != nil {
			return err
		}
		if got != want || n != size {
			return fmt.Errorf("kernel: %s is damaged: %d bytes with SHA-256 %s, the manifest says %d with %s", path, n, got, size, want)
		}
		return nil
	}
	if err := check(k.Path, k.Manifest.SHA256, k.Manifest.Size); err != nil {
		return err
	}
	for i, m := range k.Manifest.Modules {
		if err := check(k.ModulePaths()[i], m.SHA256, m.Size); err != nil {
			return err
		}
	}
	return nil
}

// get finds the kernel of key in the cache or makes it. build fills dir and
// returns the manifest, of which get adds the size and digest of vmlinux and the
// digest of config.
func get(ctx context.Context, key string, build func(ctx context.Context, dir string) (*Manifest, error)) (*Kernel, error) {
	dir, err := cache.Get(ctx, cacheKind, key, func(ctx context.Context, dir string) error {
		m, err := build(ctx, dir)
		if err != nil {
			return err
		}
		if m.SHA256, m.Size, err = digestFile(filepath.Join(dir, fileKernel)); err != nil {
			return err
		}
		if m.ConfigSHA256, _, err = digestFile(filepath.Join(dir, fileConfig)); err != nil {
			return err
		}
		return writeManifest(dir, m)
	})
	if err != nil {
		return nil, err
	}
	return open(dir)
}

// open reads the manifest of a finished cache entry.
func open(dir string) (*Kernel, error) {
	b, err := os.ReadFile(filepath.Join(dir, fileManifest))
	if err != nil {
		return nil, fmt.Errorf("kernel: read manifest: %w", err)
	}
	k := &Kernel{
		Path:       filepath.Join(dir, fileKernel),
		ConfigPath: filepath.Join(dir, fileConfig),
	}
	if err := json.Unmarshal(b, &k.Manifest); err != nil {
		return nil, fmt.Errorf("kernel: read manifest %s: %w", filepath.Join(dir, fileManifest), err)
	}
	if k.Manifest.Name == NameStock {
		k.ModulesDir = filepath.Join(dir, dirModules)
	}
	st, err := os.Stat(k.Path)
	if err != nil {
		return nil, fmt.Errorf("kernel: look at the cached kernel: %w", err)
	}
	if st.Size() != k.Manifest.Size {
		return nil, fmt.Errorf("kernel: %s is damaged: %d bytes, the manifest says %d; remove %s to have it made again", k.Path, st.Size(), k.Manifest.Size, dir)
	}
	return k, nil
}

func writeManifest(dir string, m *Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("kernel: encode manifest: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, fileManifest), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("kernel: write manifest: %w", err)
	}
	return nil
}

// say prints one line of progress.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "kernel: "+format+"\n", args...)
}
