package rootfs

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"thaw/internal/apt"
	"thaw/internal/hostcmd"
)

// debianLayer makes the Debian tree of components.
func (b *builder) debianLayer(ctx context.Context, components []string) (layer, error) {
	parts := []string{"debian", b.recipeDigest, b.locks.digest(debianLockFile), strings.Join(components, " ")}
	l, err := makeLayer(ctx, parts, func(ctx context.Context, dir, tree string) (layerInfo, error) {
		info, err := b.installDebian(ctx, tree, components, len(b.locks.debian.pins(components)))
		if err != nil {
			return info, err
		}
		// Drift is found before anything more is done with the tree, so that a
		// locked build fails without leaving a layer that was never asked for.
		info.Drift = b.locks.debian.drift(components, debianPins(info.Packages))
		if b.opts.Locked && len(info.Drift) > 0 {
			return info, &DriftError{info.Drift}
		}
		return info, b.stripTree(tree)
	})
	if err == nil && b.opts.Locked && len(l.info.Drift) > 0 {
		err = &DriftError{l.info.Drift} // made earlier, without Locked
	}
	return l, err
}

// installDebian makes a Debian tree with mmdebstrap and returns what is in it.
// expected is the number of packages to speak of while it runs, 0 when unknown.
func (b *builder) installDebian(ctx context.Context, tree string, components []string, expected int) (info layerInfo, err error) {
	if os.Geteuid() != 0 {
		return info, fmt.Errorf("rootfs: make Debian tree: %w", ErrNotRoot)
	}
	if err := ensureTool(ctx, b.progress, "mmdebstrap"); err != nil {
		return info, err
	}
	count := ""
	if expected > 0 {
		count = strconv.Itoa(expected) + " "
	}
	defer b.progress.step(&err, "%s: installing %spackages of Debian %s", strings.Join(components, "+"), count, b.recipe.Suite)()
	args := []string{
		"--mode=root", "--variant=essential", "--format=directory",
		"--architectures=" + b.recipe.Architecture,
		"--include=" + strings.Join(b.recipe.packages(components), ","),
		// The package lists stay: they have the digest of each package.
		"--skip=cleanup/apt",
		// A tree that is half there after a crash is thrown away: dpkg need not sync
		// every file.
		"--dpkgopt=force-unsafe-io",
		"--aptopt=APT::Install-Recommends \"false\"",
		"--aptopt=Acquire::Languages \"none\"",
		// The cache folder may be closed to apt's own user.
		"--aptopt=APT::Sandbox::User \"root\"",
	}
	for _, opt := range apt.HostOptions(ctx) {
		args = append(args, "--aptopt="+opt)
	}
	for _, glob := range b.recipe.Exclude {
		args = append(args, "--dpkgopt=path-exclude="+glob)
	}
	for _, glob := range b.recipe.Include {
		args = append(args, "--dpkgopt=path-include="+glob)
	}
	args = append(args, b.recipe.Suite, tree)
	args = append(args, apt.HostMirrors("/etc/apt").Sources(b.recipe.Suite)...)
	_, err = hostcmd.Command{Argv: append([]string{"mmdebstrap"}, args...),
		Env: []string{"SOURCE_DATE_EPOCH=" + strconv.FormatInt(b.recipe.Epoch, 10), "LC_ALL=C.UTF-8"}}.Run(ctx)
	if err != nil {
		return info, debianError(err)
	}
	if info.Packages, err = installedPackages(tree); err != nil {
		return info, err
	}
	version, err := os.ReadFile(filepath.Join(tree, "etc/debian_version"))
	if err != nil {
		return info, fmt.Errorf("rootfs: read Debian's version: %w", err)
	}
	info.Versions = map[string]string{"debian": strings.TrimSpace(string(version))}
	info.Tools = map[string]string{"mmdebstrap": toolVersion(ctx, "mmdebstrap")}
	return info, nil
}

// debianError tells a package that cannot be had from other failures.
func debianError(err error) error {
	for line := range strings.Lines(hostcmd.Output(err)) {
		for _, sign := range []string{"Unable to locate package", "has no installation candidate", "Failed to fetch", "Hash Sum mismatch"} {
			if strings.Contains(line, sign) {
				return fmt.Errorf("rootfs: %w: %s: %w", ErrPackage, strings.TrimSpace(line), err)
			}
		}
	}
	return err
}

// installedPackages lists the packages of a tree whose package lists are still
// there, with the digest that the lists give for each version.
func installedPackages(tree string) ([]Package, error) {
	status, err := os.Open(filepath.Join(tree, "var/lib/dpkg/status"))
	if err != nil {
		return nil, fmt.Errorf("rootfs: open package status: %w", err)
	}
	defer status.Close()
	id := func(s map[string]string) string { return s["package"] + " " + s["version"] + " " + s["architecture"] }
	found := map[string]*Package{}
	err = apt.ReadStanzas(status, []string{"package", "version", "architecture"}, func(s map[string]string) error {
		found[id(s)] = &Package{Source: SourceDebian, Name: s["package"], Version: s["version"], Architecture: s["architecture"]}
		return nil
	})
	if err != nil {
		return nil, err
	}
	lists, err := filepath.Glob(filepath.Join(tree, "var/lib/apt/lists/*_Packages"))
	if err != nil {
		return nil, fmt.Errorf("rootfs: find package lists: %w", err)
	}
	for _, list := range lists {
		if err := addDigests(list, found, id); err != nil {
			return nil, err
		}
	}
	packages := make([]Package, 0, len(found))
	for name, p := range found {
		if p.SHA256 == "" {
			return nil, fmt.Errorf("rootfs: %w: no digest of %s in the package lists", ErrPackage, name)
		}
		packages = append(packages, *p)
	}
	slices.SortFunc(packages, comparePackages)
	return packages, nil
}

func addDigests(list string, found map[string]*Package, id func(map[string]string) string) error {
	f, err := os.Open(list)
	if err != nil {
		return fmt.Errorf("rootfs: open package list: %w", err)
	}
	defer f.Close()
	return apt.ReadStanzas(f, []string{"package", "version", "architecture", "sha256"}, func(s map[string]string) error {
		if p := found[id(s)]; p != nil {
			p.SHA256 = s["sha256"]
		}
		return nil
	})
}

func comparePackages(a, b Package) int {
	return cmp.Or(strings.Compare(string(a.Source), string(b.Source)),
		strings.Compare(a.Name, b.Name), strings.Compare(a.Architecture, b.Architecture), strings.Compare(a.Version, b.Version))
}

func debianPins(packages []Package) []debianPin {
	var pins []debianPin
	for _, p := range packages {
		if p.Source == SourceDebian {
			pins = append(pins, debianPin{p.Name, p.Version, p.Architecture, p.SHA256})
		}
	}
	return pins
}

// stripTree removes what an image does not need or what differs from one
// installation to the next.
func (b *builder) stripTree(tree string) error {
	for _, glob := range b.recipe.Remove {
		paths, err := filepath.Glob(filepath.Join(tree, glob))
		if err != nil {
			return fmt.Errorf("rootfs: strip %s: %w", glob, err)
		}
		for _, p := range paths {
			// Of "root/.*" these two are the directory and its parent.
			if base := filepath.Base(p); base == "." || base == ".." {
				continue
			}
			if err := os.RemoveAll(p); err != nil {
				return fmt.Errorf("rootfs: strip %s: %w", glob, err)
			}
		}
	}
	// Byte code made by Debian's scripts has times in it; the bytecode layer has its own.
	return removeDirs(tree, "__pycache__")
}

// removeDirs removes every directory of the given name below tree.
func removeDirs(tree, name string) error {
	return filepath.WalkDir(tree, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("rootfs: walk tree: %w", err)
		}
		if !d.IsDir() || d.Name() != name {
			return nil
		}
		if err := os.RemoveAll(p); err != nil {
			return fmt.Errorf("rootfs: strip %s: %w", name, err)
		}
		return filepath.SkipDir
	})
}

// toolVersion returns the last word of what a program says about its version.
func toolVersion(ctx context.Context, name string, args ...string) string {
	if len(args) == 0 {
		args = []string{"--version"}
	}
	out, err := hostcmd.Command{Argv: append([]string{name}, args...)}.Run(ctx)
	if err != nil {
		return "unknown"
	}
	for _, word := range strings.Fields(out) {
		if word[0] >= '0' && word[0] <= '9' {
			return word
		}
	}
	return strings.TrimSpace(out)
}
