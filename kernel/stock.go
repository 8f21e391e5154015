package kernel

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"thaw/internal/cache"
	"thaw/kernel/bzimage"
)

// stockRecipe is raised when the steps below change what comes out.
const stockRecipe = 1

// maxVmlinux bounds the decompressed kernel; Debian's has 70 MB.
const maxVmlinux = 512 << 20

var stockName = regexp.MustCompile(`^linux-image-6\.12\.[0-9]+[^-]*-cloud-amd64-unsigned$`)

var missingStock = MissingError{
	What: "package linux-image-6.12…-cloud-amd64-unsigned",
	Remedy: "it is in Debian 13 and in bookworm-security for Debian 12: " +
		"add one of them to apt's sources and run apt-get update",
}

// Stock returns Debian's newest 6.12 cloud kernel that apt offers, fetching it
// if the cache lacks it. It reports on progress, which may be io.Discard.
// Nothing is installed.
func Stock(ctx context.Context, progress io.Writer) (*Kernel, error) {
	if err := requireDebian(); err != nil {
		return nil, err
	}
	if err := ensureTools(ctx, unpackTools, progress); err != nil {
		return nil, err
	}
	return withLists(ctx, progress, missingStock, func() (*Kernel, error) {
		r, err := newestStock(ctx)
		if err != nil {
			return nil, err
		}
		return get(ctx, stockKey(r), func(ctx context.Context, dir string) (*Manifest, error) {
			return buildStock(ctx, dir, r, progress)
		})
	})
}

func stockKey(r debRecord) string {
	return cache.Key(NameStock, strconv.Itoa(stockRecipe), r.Package, r.Version, r.SHA256,
		strings.Join(guestModules, " "))
}

// newestStock finds the newest package in apt's lists.
func newestStock(ctx context.Context) (debRecord, error) {
	// One run of apt-cache for names and records: where apt keeps no cache of
	// its own (container images), each takes half a second.
	out, err := output(ctx, "apt-cache", "search", "--names-only", "--full", stockName.String())
	if err != nil {
		return debRecord{}, err
	}
	records := slices.DeleteFunc(parseRecords(out), func(r debRecord) bool {
		return !stockName.MatchString(r.Package)
	})
	if len(records) == 0 {
		return debRecord{}, fmt.Errorf("kernel: find a 6.12 cloud kernel: %w", errUnavailable)
	}
	return newest(ctx, records)
}

// buildStock leaves vmlinux, config and the modules in dir.
func buildStock(ctx context.Context, dir string, r debRecord, progress io.Writer) (*Manifest, error) {
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, fmt.Errorf("kernel: make folder for the package: %w", err)
	}
	deb, err := download(ctx, r, tree, progress)
	if err != nil {
		return nil, err
	}
	say(progress, "unpacking %s %s", r.Package, r.Version)
	if _, err := output(ctx, "dpkg-deb", "--extract", deb, tree); err != nil {
		return nil, err
	}
	release := strings.TrimSuffix(strings.TrimPrefix(r.Package, "linux-image-"), "-unsigned")
	if err := extractKernel(filepath.Join(tree, "boot/vmlinuz-"+release), filepath.Join(dir, fileKernel)); err != nil {
		return nil, err
	}
	if err := os.Rename(filepath.Join(tree, "boot/config-"+release), filepath.Join(dir, fileConfig)); err != nil {
		return nil, fmt.Errorf("kernel: keep configuration: %w", err)
	}
	modules, err := pickModules(ctx, modulesRoot(tree, release), release, filepath.Join(dir, dirModules))
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(tree); err != nil {
		return nil, fmt.Errorf("kernel: remove unpacked package: %w", err)
	}
	say(progress, "have %s with %d modules", release, len(modules))
	return &Manifest{
		Name:    NameStock,
		Version: release,
		Package: Package{Name: r.Package, Version: r.Version, Digest: "sha256:" + r.SHA256},
		Recipe:  stockRecipe,
		Modules: modules,
	}, nil
}

// modulesRoot finds the modules of release in an unpacked package: Debian 13
// has them under usr/lib.
func modulesRoot(tree, release string) string {
	for _, lib := range []string{"usr/lib", "lib"} {
		root := filepath.Join(tree, lib, "modules", release)
		if _, err := os.Stat(root); err == nil {
			return root
		}
	}
	return filepath.Join(tree, "lib/modules", release)
}

// extractKernel writes the ELF kernel in the boot image at from to the file to.
func extractKernel(from, to string) error {
	image, err := os.ReadFile(from)
	if err != nil {
		return fmt.Errorf("kernel: read boot image: %w", err)
	}
	vmlinux, err := bzimage.Extract(image, maxVmlinux)
	if err != nil {
		return fmt.Errorf("kernel: extract %s: %w", filepath.Base(from), err)
	}
	if err := os.WriteFile(to, vmlinux, 0o644); err != nil {
		return fmt.Errorf("kernel: write kernel: %w", err)
	}
	return nil
}
