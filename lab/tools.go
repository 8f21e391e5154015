package lab

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"thaw/internal/apt"
	"thaw/internal/cache"
	"thaw/internal/hostcmd"
)

// Suite is the Debian release that the tools and the kernel come from: the first
// with QEMU 10. QEMU 7.2 can not be trusted with two emulated CPUs.
const Suite = "trixie"

// aptSource is where and how this host reaches Debian.
type aptSource struct {
	Mirror  string   // URI of the archive
	Options []string // of apt, such as a proxy, in the form of apt.conf
}

// Tools is the lab's Debian tree: QEMU, virtiofsd and kmod, and a kernel. Its
// programs run on the host through the tree's own dynamic loader, so the host
// needs neither a chroot nor a package.
type Tools struct {
	Root     string
	Manifest ToolManifest
}

// ToolManifest records what a tree was made of.
type ToolManifest struct {
	Suite     string `json:"suite"`
	Mirror    string `json:"mirror"`
	Kernel    string `json:"kernel"`    // release, as uname -r gives it
	QEMU      string `json:"qemu"`      // first line of --version
	Virtiofsd string `json:"virtiofsd"` // first line of --version
}

//go:embed kernel-hook.sh
var kernelHook string

// toolPackages are what the lab runs on the host, and kmod, which it runs inside.
var toolPackages = []string{"qemu-system-x86", "virtiofsd", "kmod"}

const manifestFile = "lab-tools.json"

// GetTools returns the tree, making it when the cache lacks it: about 10 s from a
// near mirror, 210 MB on disk.
func GetTools(ctx context.Context) (*Tools, error) {
	src := aptSource{Mirror: apt.HostMirrors("/etc/apt").Main, Options: apt.HostOptions(ctx)}
	dir, err := cache.Get(ctx, toolsKind, toolsKey(), func(ctx context.Context, dir string) error {
		return buildTools(ctx, dir, src)
	})
	if err != nil {
		return nil, fmt.Errorf("lab: get tools: %w", err)
	}
	return openTools(dir)
}

// CachedTools returns the tree if it is made already, else nil.
func CachedTools() (*Tools, error) {
	dir, ok, err := cache.Lookup(toolsKind, toolsKey())
	if err != nil {
		return nil, fmt.Errorf("lab: look for tools: %w", err)
	}
	if !ok {
		return nil, nil
	}
	return openTools(dir)
}

const toolsKind = "lab"

// toolsKey leaves out the mirror: packages are signed, whoever serves them.
func toolsKey() string {
	return cache.Key("lab-tools 1", Suite, strings.Join(toolPackages, ","), kernelHook)
}

func openTools(dir string) (*Tools, error) {
	t := &Tools{Root: dir}
	b, err := os.ReadFile(filepath.Join(dir, manifestFile))
	if err != nil {
		return nil, fmt.Errorf("lab: read manifest of tools: %w", err)
	}
	if err := json.Unmarshal(b, &t.Manifest); err != nil {
		return nil, fmt.Errorf("lab: decode manifest of tools: %w", err)
	}
	return t, nil
}

func buildTools(ctx context.Context, dir string, src aptSource) error {
	for _, need := range []string{"mmdebstrap", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(need); err != nil {
			return fmt.Errorf("lab: %s is missing: apt-get install mmdebstrap dpkg tar: %w", need, err)
		}
	}
	if err := unpackDebian(ctx, dir, src); err != nil {
		return err
	}
	t := &Tools{Root: dir, Manifest: ToolManifest{Suite: Suite, Mirror: src.Mirror}}
	release, err := findRelease(t.kernelDir())
	if err != nil {
		return err
	}
	t.Manifest.Kernel = release
	index := hostcmd.Command{Argv: t.command("depmod", "usr/bin/kmod", "-b", t.kernelDir(), release)}
	if _, err := index.Run(ctx); err != nil {
		return fmt.Errorf("lab: index modules: %w", err)
	}
	if t.Manifest.QEMU, err = version(ctx, t.command("", qemuPath)); err != nil {
		return err
	}
	if t.Manifest.Virtiofsd, err = version(ctx, t.command("", virtiofsdPath)); err != nil {
		return err
	}
	b, err := json.MarshalIndent(t.Manifest, "", "  ")
	if err != nil {
		return fmt.Errorf("lab: encode manifest of tools: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), b, 0o644)
}

// unpackDebian fills dir by mmdebstrap. Its "extract" variant unpacks without
// configuring, so no program of the tree runs. The tree comes as a tar stream
// and not as a folder, so that a user's own tree belongs to that user.
func unpackDebian(ctx context.Context, dir string, src aptSource) error {
	hook, err := os.CreateTemp("", "thaw-lab-hook-*.sh")
	if err != nil {
		return fmt.Errorf("lab: write kernel hook: %w", err)
	}
	defer os.Remove(hook.Name())
	_, err = hook.WriteString(kernelHook)
	// In a user namespace the hook runs with another user id.
	if err := errors.Join(err, hook.Chmod(0o644), hook.Close()); err != nil {
		return fmt.Errorf("lab: write kernel hook: %w", err)
	}
	boot := exec.CommandContext(ctx, "mmdebstrap", mmdebstrapArgs(src, hook.Name(), os.Geteuid() == 0)...)
	untar := exec.CommandContext(ctx, "tar", "-x", "-C", dir, "--no-same-owner", "--exclude=./dev/*")
	var bootLog, tarLog strings.Builder
	boot.Stderr, untar.Stderr = &bootLog, &tarLog
	if untar.Stdin, err = boot.StdoutPipe(); err != nil {
		return fmt.Errorf("lab: connect mmdebstrap and tar: %w", err)
	}
	if err := boot.Start(); err != nil {
		return fmt.Errorf("lab: start mmdebstrap: %w", err)
	}
	errTar := untar.Run()
	if err := boot.Wait(); err != nil {
		return fmt.Errorf("lab: mmdebstrap: %w: %s", err, hostcmd.LastLines(bootLog.String(), 10))
	}
	if errTar != nil {
		return fmt.Errorf("lab: unpack tools: %w: %s", errTar, hostcmd.LastLines(tarLog.String(), 5))
	}
	return nil
}

func mmdebstrapArgs(src aptSource, hook string, root bool) []string {
	mode := "unshare"
	if root {
		mode = "root"
	}
	args := []string{
		"--mode=" + mode, "--variant=extract", "--format=tar",
		"--include=" + strings.Join(toolPackages, ","),
		`--extract-hook=APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" sh ` + hook + ` "$1"`,
	}
	for _, o := range src.Options {
		args = append(args, "--aptopt="+o)
	}
	return append(args, Suite, "-", src.Mirror)
}

const (
	qemuPath      = "usr/bin/qemu-system-x86_64"
	virtiofsdPath = "usr/libexec/virtiofsd"
)

func (t *Tools) kernelDir() string { return filepath.Join(t.Root, "lab-kernel") }

func (t *Tools) vmlinuz() string {
	return filepath.Join(t.kernelDir(), "boot", "vmlinuz-"+t.Manifest.Kernel)
}

// loader is the command line that runs a program of the tree.
func (t *Tools) loader() []string {
	lib := filepath.Join(t.Root, "usr/lib/x86_64-linux-gnu")
	return []string{filepath.Join(lib, "ld-linux-x86-64.so.2"), "--library-path", lib}
}

// command returns the argv of a program of the tree; argv0 is the name that the
// program sees, empty for its path.
func (t *Tools) command(argv0, path string, args ...string) []string {
	argv := slices.Clone(t.loader())
	if argv0 != "" {
		argv = append(argv, "--argv0", argv0)
	}
	return append(append(argv, filepath.Join(t.Root, path)), args...)
}

// findRelease returns the one kernel release below dir/usr/lib/modules.
func findRelease(dir string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "usr/lib/modules"))
	if err != nil {
		return "", fmt.Errorf("lab: find kernel: %w", err)
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("lab: find kernel: %d releases, want one", len(entries))
	}
	return entries[0].Name(), nil
}

func version(ctx context.Context, argv []string) (string, error) {
	out, err := hostcmd.Command{Argv: append(argv, "--version")}.Run(ctx)
	if err != nil {
		return "", fmt.Errorf("lab: try %s: %w", filepath.Base(argv[len(argv)-1]), err)
	}
	line, _, _ := strings.Cut(out, "\n")
	return line, nil
}
