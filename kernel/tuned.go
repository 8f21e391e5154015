package kernel

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"thaw/internal/cache"
	"thaw/internal/hostcmd"
)

// tunedRecipe is raised when the steps below change what comes out.
const tunedRecipe = 1

var (
	//go:embed microvm.config
	configFragment []byte
	//go:embed pvm-native-guest.patch
	nativePatch []byte
	//go:embed zeroed-pages.patch
	zeroedPatch []byte
	//go:embed aligned-maps.patch
	alignedPatch []byte
	//go:embed whole-rodata.patch
	rodataPatch []byte
	//go:embed vmgenid-interrupt.patch
	vmgenidPatch []byte
	//go:embed vsock-credit.patch
	creditPatch []byte

	// patches are applied in this order.
	patches = [][]byte{nativePatch, zeroedPatch, alignedPatch, rodataPatch, vmgenidPatch, creditPatch}
)

// toolchain is what compiles the kernel, by the first lines of --version.
type toolchain struct {
	compiler, linker string
}

// Tuned returns the tuned kernel, compiling it if the cache lacks it: 5 to 7
// minutes on two cores, 3 GiB of disk while it lasts. It reports on progress,
// which may be io.Discard. Root installs what is missing with apt; other users
// get a *MissingError.
func Tuned(ctx context.Context, progress io.Writer) (*Kernel, error) {
	if err := requireDebian(); err != nil {
		return nil, err
	}
	if err := ensureTools(ctx, kernelTools, progress); err != nil {
		return nil, err
	}
	src, err := findSource(ctx, progress)
	if err != nil {
		return nil, err
	}
	tc, err := findToolchain(ctx)
	if err != nil {
		return nil, err
	}
	return get(ctx, tunedKey(src.pkg, tc), func(ctx context.Context, dir string) (*Manifest, error) {
		return buildTuned(ctx, dir, src, tc, progress)
	})
}

// tunedKey digests everything that decides the compiled kernel.
func tunedKey(pkg Package, tc toolchain) string {
	return cache.Key(NameTuned, strconv.Itoa(tunedRecipe), pkg.Version, pkg.Digest,
		digestBytes(configFragment), digestPatches(), tc.compiler, tc.linker)
}

// digestPatches is the digest of all patches, one after the other.
func digestPatches() string { return digestBytes(bytes.Join(patches, nil)) }

func findToolchain(ctx context.Context) (toolchain, error) {
	var tc toolchain
	for _, t := range []struct {
		program string
		line    *string
	}{{"gcc", &tc.compiler}, {"ld", &tc.linker}} {
		out, err := output(ctx, t.program, "--version")
		if err != nil {
			return tc, err
		}
		*t.line, _, _ = strings.Cut(strings.TrimSpace(out), "\n")
	}
	return tc, nil
}

// buildTuned compiles the kernel and leaves vmlinux and config in dir.
func buildTuned(ctx context.Context, dir string, src *source, tc toolchain, progress io.Writer) (*Manifest, error) {
	began := time.Now()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, fmt.Errorf("kernel: make source folder: %w", err)
	}
	say(progress, "unpacking %s %s", src.pkg.Name, src.pkg.Version)
	if err := src.unpack(ctx, tree); err != nil {
		return nil, err
	}
	env, err := buildEnv(tree)
	if err != nil {
		return nil, err
	}
	if err := configure(ctx, tree, env); err != nil {
		return nil, err
	}
	counter := newCounter(progress)
	defer counter.stop()
	_, err = run(ctx, hostcmd.Command{
		Dir: tree, Env: env, Stdout: counter,
		Argv: []string{"make", "ARCH=x86_64", "-j" + strconv.Itoa(runtime.NumCPU()), fileKernel},
	})
	if err != nil {
		return nil, err
	}
	counter.stop()
	release, err := os.ReadFile(filepath.Join(tree, "include/config/kernel.release"))
	if err != nil {
		return nil, fmt.Errorf("kernel: read release: %w", err)
	}
	for from, to := range map[string]string{fileKernel: fileKernel, ".config": fileConfig} {
		if err := os.Rename(filepath.Join(tree, from), filepath.Join(dir, to)); err != nil {
			return nil, fmt.Errorf("kernel: keep %s: %w", from, err)
		}
	}
	if err := os.RemoveAll(tree); err != nil {
		return nil, fmt.Errorf("kernel: remove source: %w", err)
	}
	say(progress, "built %s in %s", strings.TrimSpace(string(release)), time.Since(began).Round(time.Second))
	return &Manifest{
		Name:           NameTuned,
		Version:        strings.TrimSpace(string(release)),
		Package:        src.pkg,
		FragmentSHA256: digestBytes(configFragment),
		PatchSHA256:    digestPatches(),
		Compiler:       tc.compiler,
		Linker:         tc.linker,
		Recipe:         tunedRecipe,
	}, nil
}

// buildEnv fixes what the kernel would otherwise take from the machine and the
// moment (Documentation/kbuild/reproducible-builds.rst). The time is that of
// the source's own Makefile.
func buildEnv(tree string) ([]string, error) {
	st, err := os.Stat(filepath.Join(tree, "Makefile"))
	if err != nil {
		return nil, fmt.Errorf("kernel: the source archive has no Makefile: %w", err)
	}
	return []string{
		"KBUILD_BUILD_TIMESTAMP=" + st.ModTime().UTC().Format(time.UnixDate),
		"KBUILD_BUILD_USER=thaw",
		"KBUILD_BUILD_HOST=thaw",
		"KBUILD_BUILD_VERSION=1",
	}, nil
}

// configure patches tree and writes its .config.
func configure(ctx context.Context, tree string, env []string) error {
	fragment, patch := filepath.Join(tree, "thaw.config"), filepath.Join(tree, "thaw.patch")
	if err := writeInput(fragment, configFragment); err != nil {
		return err
	}
	for _, content := range patches {
		if err := writeInput(patch, content); err != nil {
			return err
		}
		// Fuzz is refused: a patch that no longer fits has to be looked at.
		patching := hostcmd.Command{Dir: tree, Argv: []string{"patch", "-p1", "--batch", "--fuzz=0", "-i", patch}}
		if _, err := run(ctx, patching); err != nil {
			return err
		}
	}
	configuring := hostcmd.Command{
		Dir: tree, Env: append(env, "KCONFIG_ALLCONFIG="+fragment),
		Argv: []string{"make", "-s", "ARCH=x86_64", "allnoconfig"},
	}
	if _, err := run(ctx, configuring); err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(tree, ".config"))
	if err != nil {
		return fmt.Errorf("kernel: read configuration: %w", err)
	}
	if lost := lostOptions(string(configFragment), string(got)); len(lost) > 0 {
		return errors.New("kernel: the source does not take these options of microvm.config: " + strings.Join(lost, ", "))
	}
	return nil
}

func writeInput(path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o644); err != nil {
		return fmt.Errorf("kernel: write build input: %w", err)
	}
	return nil
}

// lostOptions returns the assignments of fragment that config, a complete
// configuration, does not have: options that were renamed, or whose
// dependencies are missing. The build would go on without them in silence.
func lostOptions(fragment, config string) []string {
	want, got := parseConfig(fragment), parseConfig(config)
	var lost []string
	for _, name := range slices.Sorted(maps.Keys(want)) {
		value := got[name]
		if value == "" {
			value = "n"
		}
		if value != want[name] {
			lost = append(lost, name+"="+want[name])
		}
	}
	return lost
}

// parseConfig reads the assignments of a configuration or fragment.
func parseConfig(text string) map[string]string {
	options := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if ok && strings.HasPrefix(name, "CONFIG_") {
			options[name] = value
		}
	}
	return options
}
