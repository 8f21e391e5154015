package rootfs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"thaw/internal/hostcmd"
)

// Relock writes lock files into dir (rootfs/lock of the source tree, or a folder
// for Options.LockDir) that name what the registries serve now for the recipe:
// the newest versions its ranges allow. All three are resolved before the first
// is written. It needs root, as Build does.
func Relock(ctx context.Context, dir string, progress io.Writer) error {
	r, err := loadRecipe()
	if err != nil {
		return err
	}
	b := &builder{recipe: r, locks: &locks{}, progress: newProgress(progress)}
	work, err := os.MkdirTemp("", "thaw-lock-")
	if err != nil {
		return fmt.Errorf("rootfs: make lock: %w", err)
	}
	defer os.RemoveAll(work)
	files := map[string][]byte{}
	for _, part := range []struct {
		file    string
		resolve func(ctx context.Context, work string) ([]byte, error)
	}{
		{pythonLockFile, b.resolvePython},
		{npmLockFile, b.resolveNPM},
		{debianLockFile, b.resolveDebian},
	} {
		if files[part.file], err = part.resolve(ctx, work); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("rootfs: write lock: %w", err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return fmt.Errorf("rootfs: write lock: %w", err)
		}
	}
	_, err = loadLocks(dir)
	return err
}

// resolvePython asks pip which wheels the requirements come to.
func (b *builder) resolvePython(ctx context.Context, work string) (lock []byte, err error) {
	if err := ensureTool(ctx, b.progress, "pip3"); err != nil {
		return nil, err
	}
	defer b.progress.step(&err, "lock: resolving Python packages")()
	file := filepath.Join(work, "report.json")
	args := append([]string{"install", "--dry-run", "--ignore-installed", "--quiet", "--report", file,
		"--target", filepath.Join(work, "target")}, b.pipTarget()...)
	if _, err := (hostcmd.Command{Argv: slices.Concat([]string{"pip3"}, args, b.recipe.Python.Requirements)}).Run(ctx); err != nil {
		return nil, pipError(err)
	}
	var report struct {
		Install []struct {
			Metadata     struct{ Name, Version string }
			DownloadInfo struct {
				ArchiveInfo struct{ Hashes map[string]string } `json:"archive_info"`
			} `json:"download_info"`
		}
	}
	if err := readJSON(file, &report); err != nil {
		return nil, err
	}
	lines := make([]string, 0, len(report.Install))
	for _, p := range report.Install {
		lines = append(lines, fmt.Sprintf("%s==%s --hash=sha256:%s\n",
			strings.ToLower(p.Metadata.Name), p.Metadata.Version, p.DownloadInfo.ArchiveInfo.Hashes["sha256"]))
	}
	slices.Sort(lines)
	head := fmt.Sprintf("# Wheels for CPython %s on x86-64, written by `thaw image lock`.\n", b.recipe.Python.Version)
	return []byte(head + strings.Join(lines, "")), nil
}

// resolveNPM asks npm which packages the recipe's package.json comes to. The
// lock names no registry: whichever npm is set up for serves, and the digests
// say whether what it serves is right.
func (b *builder) resolveNPM(ctx context.Context, work string) (lock []byte, err error) {
	if err := ensureTool(ctx, b.progress, "npm"); err != nil {
		return nil, err
	}
	defer b.progress.step(&err, "lock: resolving npm packages")()
	project := filepath.Join(work, "npm")
	if err := writeNPMProject(project, nil); err != nil {
		return nil, err
	}
	_, err = hostcmd.Command{Dir: project, Argv: []string{"npm", "install", "--package-lock-only", "--ignore-scripts",
		"--omit-lockfile-registry-resolved", "--no-audit", "--no-fund", "--no-update-notifier", "--fetch-retries=1", "--loglevel=http"}}.Run(ctx)
	if err != nil {
		return nil, npmError(err)
	}
	lock, err = os.ReadFile(filepath.Join(project, npmLockFile))
	if err != nil {
		return nil, fmt.Errorf("rootfs: read npm's lock: %w", err)
	}
	return lock, nil
}

// resolveDebian installs each set of components and keeps the names of what
// it finds there beyond the sets below it.
func (b *builder) resolveDebian(ctx context.Context, work string) ([]byte, error) {
	lock := debianLock{Suite: b.recipe.Suite, Components: map[string][]debianPin{}}
	for _, set := range [][]string{
		{componentBase},
		{componentBase, componentPython},
		{componentBase, componentPython, componentPythonDebian},
		{componentBase, componentNodeDebian},
		{componentBase, componentBench},
	} {
		last := set[len(set)-1]
		tree := filepath.Join(work, last)
		info, err := b.installDebian(ctx, tree, set, len(lock.pins(set)))
		if err != nil {
			return nil, err
		}
		known := lock.pins(set)
		lock.Components[last] = slices.DeleteFunc(debianPins(info.Packages), func(p debianPin) bool {
			return slices.Contains(known, p)
		})
		if err := os.RemoveAll(tree); err != nil {
			return nil, fmt.Errorf("rootfs: remove trial tree: %w", err)
		}
	}
	raw, err := json.MarshalIndent(lock, "", " ")
	if err != nil {
		return nil, fmt.Errorf("rootfs: encode lock: %w", err)
	}
	return append(raw, '\n'), nil
}
