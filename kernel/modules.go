package kernel

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"thaw/internal/hostcmd"
	"thaw/kernel/kmod"
)

// guestModules are what a guest of a stock kernel needs, by canonical name, in
// the order in which they are wanted. Those built into the kernel are skipped.
var guestModules = []string{
	// devices
	"virtio_mmio", "virtio_blk", "virtio_net", "virtio_rng", "virtio_balloon",
	"vsock", "vmw_vsock_virtio_transport", "vsock_loopback",
	"vmgenid", "pvpanic_mmio",
	// file systems; quota_v2 serves ext4's project quota
	"erofs", "overlay", "ext4", "quota_v2",
	// ending TCP connections after a restore
	"tcp_diag", "udp_diag",
}

// moduleTree is the folder of modules of an unpacked kernel package.
type moduleTree struct {
	release string
	files   map[string]string // canonical name → path
	builtin map[string]bool

	content map[string][]byte // of those read, decompressed
}

// pickModules puts the modules that a guest needs, decompressed, into dir with
// a file that has their load order.
func pickModules(ctx context.Context, root, release, dir string) ([]Module, error) {
	tree, err := openModules(root, release)
	if err != nil {
		return nil, err
	}
	var wanted []string
	for _, name := range guestModules {
		if !tree.builtin[name] {
			wanted = append(wanted, name)
		}
	}
	order, err := kmod.Order(wanted, func(name string) (kmod.Info, error) { return tree.info(ctx, name) })
	if err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("kernel: make modules folder: %w", err)
	}
	var modules []Module
	var list strings.Builder
	for _, name := range order {
		ko := tree.content[name]
		m := Module{Name: name, File: name + ".ko", SHA256: digestBytes(ko), Size: int64(len(ko))}
		if err := os.WriteFile(filepath.Join(dir, m.File), ko, 0o644); err != nil {
			return nil, fmt.Errorf("kernel: write module: %w", err)
		}
		modules = append(modules, m)
		fmt.Fprintln(&list, m.File)
	}
	if err := os.WriteFile(filepath.Join(dir, fileOrder), []byte(list.String()), 0o644); err != nil {
		return nil, fmt.Errorf("kernel: write module order: %w", err)
	}
	return modules, nil
}

func openModules(root, release string) (*moduleTree, error) {
	builtin, err := os.ReadFile(filepath.Join(root, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("kernel: read list of built-in modules: %w", err)
	}
	t := &moduleTree{
		release: release,
		files:   map[string]string{}, builtin: map[string]bool{}, content: map[string][]byte{},
	}
	for line := range strings.Lines(string(builtin)) {
		t.builtin[moduleName(strings.TrimSpace(line))] = true
	}
	err = filepath.WalkDir(filepath.Join(root, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(d.Name(), ".ko") {
			t.files[moduleName(path)] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kernel: list modules: %w", err)
	}
	return t, nil
}

// moduleName returns the canonical name of the module in the file at path.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return kmod.Canonical(name)
}

// info reads the module called name and keeps its content.
func (t *moduleTree) info(ctx context.Context, name string) (kmod.Info, error) {
	path, ok := t.files[name]
	if !ok {
		return kmod.Info{}, fmt.Errorf("kernel: the package has no module %s", name)
	}
	ko, err := readModule(ctx, path)
	if err != nil {
		return kmod.Info{}, err
	}
	m, err := kmod.Parse(ko)
	if err != nil {
		return kmod.Info{}, fmt.Errorf("kernel: %s: %w", filepath.Base(path), err)
	}
	if m.Name != name {
		return kmod.Info{}, fmt.Errorf("kernel: %s calls itself %s", filepath.Base(path), m.Name)
	}
	if release, _, _ := strings.Cut(m.Vermagic, " "); release != t.release {
		return kmod.Info{}, fmt.Errorf("kernel: %s is for kernel %q, not %s", filepath.Base(path), release, t.release)
	}
	t.content[name] = ko
	return m, nil
}

// maxModule bounds a decompressed module; the largest in Debian's package has
// 6 MB.
const maxModule = 64 << 20

// readModule returns the content of the module at path, without compression.
func readModule(ctx context.Context, path string) ([]byte, error) {
	var unpack []string
	switch filepath.Ext(path) {
	case ".ko":
		ko, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("kernel: read module: %w", err)
		}
		return ko, nil
	case ".xz":
		unpack = []string{"xz", "-dc", path}
	case ".zst":
		unpack = []string{"zstd", "-dcq", path}
	case ".gz":
		unpack = []string{"gzip", "-dc", path}
	default:
		return nil, fmt.Errorf("kernel: unknown compression of %s", filepath.Base(path))
	}
	out := boundedBuffer{limit: maxModule}
	if _, err := run(ctx, hostcmd.Command{Argv: unpack, Stdout: &out}); err != nil {
		return nil, fmt.Errorf("kernel: unpack %s: %w", filepath.Base(path), err)
	}
	return out.buf.Bytes(), nil
}

// boundedBuffer refuses to hold more than limit bytes, which ends the command
// that writes into it.
type boundedBuffer struct {
	limit int
	buf   bytes.Buffer
}

func (b *boundedBuffer) Write(p []byte) (int, error) {
	if b.buf.Len()+len(p) > b.limit {
		return 0, fmt.Errorf("kernel: more than %d bytes of output", b.limit)
	}
	return b.buf.Write(p)
}
