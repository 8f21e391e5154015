package rootfs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"thaw/internal/hostcmd"
)

// sitePackages is where wheels go: before Debian's own folder in sys.path.
func (b *builder) sitePackages() string {
	return "usr/local/lib/python" + b.recipe.Python.Version + "/dist-packages"
}

// fontDir is where matplotlib finds its font list (MPLCONFIGDIR). It belongs to
// the job's user: matplotlib passes over a folder that it may not write to.
const fontDir = "var/cache/matplotlib"

// bytecodeShards is how many processes compile. A constant: it decides bytes.
const bytecodeShards = 2

// wheelsLayer fetches the locked wheels with pip, checking their SHA-256, and
// unpacks them. It returns an *unreachedError when the registry does not answer.
func (b *builder) wheelsLayer(ctx context.Context) (layer, error) {
	parts := []string{"wheels", b.recipeDigest, b.locks.digest(pythonLockFile)}
	return makeLayer(ctx, parts, func(ctx context.Context, dir, tree string) (layerInfo, error) {
		wheels := filepath.Join(dir, "wheels")
		version, err := b.downloadWheels(ctx, wheels)
		if err != nil {
			return layerInfo{}, err
		}
		site := filepath.Join(tree, b.sitePackages())
		files, err := filepath.Glob(filepath.Join(wheels, "*.whl"))
		if err != nil {
			return layerInfo{}, fmt.Errorf("rootfs: list wheels: %w", err)
		}
		if len(files) != len(b.locks.python) {
			return layerInfo{}, fmt.Errorf("rootfs: %w: pip brought %d wheels for %d locked packages", ErrPackage, len(files), len(b.locks.python))
		}
		for _, wheel := range files {
			if err := unpackWheel(wheel, site); err != nil {
				return layerInfo{}, err
			}
		}
		info := layerInfo{Tools: map[string]string{"pip": version}}
		for _, p := range b.locks.python {
			info.Packages = append(info.Packages, Package{Source: SourcePyPI, Name: p.name, Version: p.version, SHA256: p.sha256})
		}
		return info, os.RemoveAll(wheels)
	})
}

func (b *builder) downloadWheels(ctx context.Context, dir string) (version string, err error) {
	if err := ensureTool(ctx, b.progress, "pip3"); err != nil {
		return "", err
	}
	defer b.progress.step(&err, "python: fetching %d wheels", len(b.locks.python))()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", fmt.Errorf("rootfs: make wheel folder: %w", err)
	}
	requirements := filepath.Join(dir, pythonLockFile)
	if err := os.WriteFile(requirements, b.locks.raw[pythonLockFile], 0o644); err != nil {
		return "", fmt.Errorf("rootfs: write requirements: %w", err)
	}
	args := append([]string{"download", "--require-hashes", "--no-deps", "--dest", dir, "-r", requirements}, b.pipTarget()...)
	if _, err := (hostcmd.Command{Argv: append([]string{"pip3"}, args...)}).Run(ctx); err != nil {
		return "", pipError(err)
	}
	return toolVersion(ctx, "pip3"), nil
}

// pipTarget are pip's options that choose wheels for the image's Python
// whatever the host's is.
func (b *builder) pipTarget() []string {
	v := b.recipe.Python.Version
	args := []string{"--only-binary=:all:", "--implementation=cp", "--python-version=" + v,
		"--abi=cp" + strings.ReplaceAll(v, ".", ""), "--abi=abi3", "--abi=none",
		"--disable-pip-version-check", "--no-input", "--progress-bar=off", "--retries=2", "--timeout=30"}
	for _, p := range b.recipe.Python.Platforms {
		args = append(args, "--platform="+p)
	}
	return args
}

// Signs in pip's output. It reports a registry that does not answer and a
// package that is not there by the same last line.
var (
	pipUnreached = regexp.MustCompile(`(?i)failed to establish a new connection|connection (refused|reset|broken|aborted)|name resolution|max retries exceeded|timed out|proxyerror`)
	pipMissing   = regexp.MustCompile(`No matching distribution found for (\S+)`)
	pipMismatch  = regexp.MustCompile(`(?s)DO NOT MATCH THE HASHES.*?(\S+==\S+) from`)
)

// pipError tells the ways in which pip fails apart.
func pipError(err error) error {
	out := hostcmd.Output(err)
	if pipUnreached.MatchString(out) {
		return &unreachedError{SourcePyPI, err}
	}
	if m := pipMismatch.FindStringSubmatch(out); m != nil {
		return fmt.Errorf("rootfs: %w: %s from PyPI: %w", ErrDigest, m[1], err)
	}
	if m := pipMissing.FindStringSubmatch(out); m != nil {
		return fmt.Errorf("rootfs: %w: %s from PyPI (remedy: `thaw image lock`, or THAW_PYTHON_SOURCE=debian): %w", ErrPackage, m[1], err)
	}
	return err
}

// chrootScript runs a program of the recipe inside the Debian tree $1, mounted
// read only at $2, with the wheels $3 (or "") at their place and $4, writable,
// at /mnt. It runs in a mount namespace of its own, so that nothing is left
// mounted however it ends.
const chrootScript = `set -eu
mount --bind "$1" "$2"
mount -o remount,bind,ro "$2"
if [ -n "$3" ]; then mount --bind "$3" "$2/usr/local/lib"; fi
mount --bind "$4" "$2/mnt"
root=$2
shift 4
exec chroot "$root" /usr/bin/env -i PATH=/usr/bin:/bin LANG=C.UTF-8 HOME=/mnt MPLCONFIGDIR=/mnt/config PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1 "$@"
`

// bytecodeLayer compiles every Python file of the Debian tree and the wheels
// (nil where Python comes from Debian alone) with the image's own interpreter,
// and makes matplotlib's font list.
func (b *builder) bytecodeLayer(ctx context.Context, debian layer, wheels *layer) (layer, error) {
	parts := []string{"bytecode", b.recipeDigest, debian.key, strconv.Itoa(bytecodeShards)}
	site := ""
	if wheels != nil {
		parts = append(parts, wheels.key)
		site = filepath.Join(wheels.tree(), "usr/local/lib")
	}
	return makeLayer(ctx, parts, func(ctx context.Context, dir, tree string) (info layerInfo, err error) {
		if err := ensureTool(ctx, b.progress, "unshare"); err != nil {
			return info, err
		}
		defer b.progress.step(&err, "python: compiling to byte code")()
		mnt := filepath.Join(dir, "mnt")
		if err := os.Mkdir(mnt, 0o755); err != nil {
			return info, fmt.Errorf("rootfs: make mount point: %w", err)
		}
		inside := func(ctx context.Context, out string, argv ...string) (string, error) {
			args := append([]string{"unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", chrootScript, "sh",
				debian.tree(), mnt, site, out}, argv...)
			return hostcmd.Command{Argv: args}.Run(ctx)
		}
		if err := b.compile(ctx, tree, inside); err != nil {
			return info, err
		}
		if err := b.fontList(ctx, dir, tree, inside); err != nil {
			return info, err
		}
		version, err := inside(ctx, tree, "python3", "-IS", "-c", "import platform; print(platform.python_version())")
		if err != nil {
			return info, err
		}
		info.Versions = map[string]string{"python": strings.TrimSpace(version)}
		return info, os.Remove(mnt)
	})
}

// insideFunc runs argv in the image's tree with the folder out at /mnt.
type insideFunc func(ctx context.Context, out string, argv ...string) (string, error)

func (b *builder) compile(ctx context.Context, tree string, inside insideFunc) error {
	program, err := recipeFS.ReadFile("recipe/bytecode.py")
	if err != nil {
		return fmt.Errorf("rootfs: read recipe: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for shard := range bytecodeShards {
		group.Go(func() error {
			_, err := inside(ctx, tree, "python3", "-IS", "-c", string(program),
				"/mnt", strconv.Itoa(shard), strconv.Itoa(bytecodeShards))
			return err
		})
	}
	return group.Wait()
}

func (b *builder) fontList(ctx context.Context, dir, tree string, inside insideFunc) error {
	program, err := recipeFS.ReadFile("recipe/fonts.py")
	if err != nil {
		return fmt.Errorf("rootfs: read recipe: %w", err)
	}
	scratch := filepath.Join(dir, "fonts")
	target := filepath.Join(tree, fontDir)
	for _, d := range []string{filepath.Join(scratch, "out"), filepath.Join(scratch, "config"), target} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("rootfs: make font folder: %w", err)
		}
	}
	if _, err := inside(ctx, scratch, "python3", "-c", string(program), "/mnt/out"); err != nil {
		return err
	}
	lists, err := filepath.Glob(filepath.Join(scratch, "out", "fontlist-*.json"))
	if err != nil || len(lists) != 1 {
		return fmt.Errorf("rootfs: matplotlib wrote %d font lists, want 1", len(slices.Compact(lists)))
	}
	if err := os.Rename(lists[0], filepath.Join(target, filepath.Base(lists[0]))); err != nil {
		return fmt.Errorf("rootfs: keep font list: %w", err)
	}
	return os.RemoveAll(scratch)
}
