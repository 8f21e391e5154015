// Package assets finds and opens what machines boot from: kernel, initramfs and
// images. It never builds anything.
//
// What `thaw kernel build` and `thaw image build` made is in the cache under a
// digest of its inputs, which only the builders can compute. They publish it
// under a fixed name with Publish, as a symbolic link in the cache's folder
// "current", where the daemon looks:
//
//	current/vmlinux-tuned   current/modules-stock   current/python.erofs   …
package assets

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"thaw/api"
	"thaw/internal/cache"
	"thaw/rootfs"
)

// Names in the folder of published things.
const (
	kernelPrefix  = "vmlinux-"
	modulesPrefix = "modules-"
	imageSuffix   = ".erofs"
)

// KernelName is the published name of a kernel.
func KernelName(name string) string { return kernelPrefix + name }

// ModulesName is the published name of a kernel's modules folder.
func ModulesName(name string) string { return modulesPrefix + name }

// ImageName is the published name of an image.
func ImageName(name string) string { return name + imageSuffix }

// Dir is the folder of published things.
func Dir() (string, error) {
	dir, err := cache.Dir()
	if err != nil {
		return "", fmt.Errorf("assets: %w", err)
	}
	return filepath.Join(dir, "current"), nil
}

// Publish makes name in the folder of published things lead to path, atomically.
func Publish(name, path string) error {
	dir, err := Dir()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("assets: make folder: %w", err)
	}
	next := filepath.Join(dir, name+".new")
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("assets: publish %s: %w", name, err)
	}
	if err := os.Symlink(path, next); err != nil {
		return fmt.Errorf("assets: publish %s: %w", name, err)
	}
	if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
		return fmt.Errorf("assets: publish %s: %w", name, err)
	}
	return nil
}

// Config says where to look. Kernel is a path, or the name of a published kernel.
type Config struct {
	Kernel string
	Images string // folder of NAME.erofs; "" is the folder of published things
	Init   string // static guest init, for the initramfs
}

// Set is a daemon's assets.
type Set struct {
	cfg     Config
	modules string // folder of a stock kernel's modules, or ""

	mu     sync.Mutex
	packed packed // protected by mu

	envMu sync.Mutex
	envs  map[string]environment // by image; protected by envMu
}

// packed remembers the last initramfs and what it was made of, so that a job's
// start does not read and digest the guest's init again.
type packed struct {
	of   string // identity of every file in it
	path string
}

// New resolves a configuration; files are looked at when they are needed, so that
// an image made later is found.
func New(cfg Config) (*Set, error) {
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	s := &Set{cfg: cfg}
	if s.cfg.Images == "" {
		s.cfg.Images = dir
	}
	if !strings.ContainsRune(cfg.Kernel, filepath.Separator) {
		s.cfg.Kernel = filepath.Join(dir, KernelName(cfg.Kernel))
		s.modules = filepath.Join(dir, ModulesName(cfg.Kernel))
	}
	return s, nil
}

// Kernel opens the kernel after looking at its header.
func (s *Set) Kernel() (*os.File, error) {
	return open("kernel", s.cfg.Kernel, "make kernel", checkKernel)
}

// Image opens an image after looking at its header.
func (s *Set) Image(name string) (*os.File, error) {
	return open("image "+name, s.imagePath(name), "make images", checkImage)
}

func (s *Set) imagePath(name string) string { return filepath.Join(s.cfg.Images, ImageName(name)) }

// Env is the environment that programs of an image start with, as NAME=value: what
// the manifest beside it says, nothing where there is none.
func (s *Set) Env(name string) ([]string, error) {
	path, err := filepath.EvalSymlinks(s.imagePath(name))
	if err != nil {
		return nil, fmt.Errorf("assets: find image: %w", err)
	}
	b, err := os.ReadFile(filepath.Join(filepath.Dir(path), "manifest.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s.envMu.Lock()
	defer s.envMu.Unlock()
	if known, ok := s.envs[name]; ok && err == nil && bytes.Equal(b, known.manifest) {
		return slices.Clone(known.env), nil
	}
	var m rootfs.Manifest
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeAssetInvalid, "the manifest of image %s cannot be read", name).WithCause(err).WithRemedy("run `make images`")
	}
	var env []string
	for k, v := range m.Env {
		env = append(env, k+"="+v)
	}
	slices.Sort(env)
	if s.envs == nil {
		s.envs = map[string]environment{}
	}
	s.envs[name] = environment{b, env}
	return slices.Clone(env), nil
}

// environment is what was last made of a manifest: that names each package and file of the image, and to decode it took a
// twentieth of what the daemon does for a job.
type environment struct {
	manifest []byte
	env      []string
}

// Initramfs opens the initramfs of the guest's init, with the kernel's modules if
// it has any. Packing one costs milliseconds, and only the first time.
func (s *Set) Initramfs(ctx context.Context) (*os.File, error) {
	modules, err := modulePaths(s.modules)
	if err != nil {
		return nil, err
	}
	path, err := s.pack(ctx, modules)
	if err != nil {
		code := api.CodeAssetInvalid
		if _, serr := os.Stat(s.cfg.Init); errors.Is(serr, fs.ErrNotExist) {
			code = api.CodeAssetMissing
		}
		return nil, api.Errorf(code, "the initramfs cannot be made from %s", s.cfg.Init).WithCause(err).
			WithRemedy("run `make build`; thaw-init belongs beside thawd")
	}
	return open("initramfs", path, "make build", nil)
}

// pack returns the initramfs, packing it when a file has changed.
func (s *Set) pack(ctx context.Context, modules []string) (string, error) {
	var of strings.Builder
	for _, path := range append([]string{s.cfg.Init}, modules...) {
		st, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&of, "%s %d %d\n", path, st.Size(), st.ModTime().UnixNano())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.packed.of == of.String() {
		if _, err := os.Stat(s.packed.path); err == nil {
			return s.packed.path, nil
		}
	}
	path, err := rootfs.Initramfs(ctx, s.cfg.Init, modules)
	if err != nil {
		return "", err
	}
	s.packed = packed{of.String(), path}
	return path, nil
}

// Modules are the names of the kernel's modules in load order; none for a kernel
// that has all it needs built in.
func (s *Set) Modules() ([]string, error) {
	paths, err := modulePaths(s.modules)
	for i, p := range paths {
		paths[i] = strings.TrimSuffix(filepath.Base(p), ".ko")
	}
	return paths, err
}

// modulePaths reads modules.order of a published modules folder.
func modulePaths(dir string) ([]string, error) {
	if dir == "" {
		return nil, nil
	}
	b, err := os.ReadFile(filepath.Join(dir, "modules.order"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("assets: read module order: %w", err)
	}
	var out []string
	for _, name := range strings.Fields(string(b)) {
		out = append(out, filepath.Join(dir, name))
	}
	return out, nil
}

// Describe says for the kernel and each named image whether it can be booted from.
func (s *Set) Describe(images []string) (api.Asset, map[string]api.Asset) {
	describe := func(name, path string, f *os.File, err error) api.Asset {
		a := api.Asset{Name: name, Path: path, OK: err == nil}
		if err != nil {
			a.Error = err.Error()
			return a
		}
		f.Close()
		return a
	}
	f, err := s.Kernel()
	kernel := describe(strings.TrimPrefix(filepath.Base(s.cfg.Kernel), kernelPrefix), s.cfg.Kernel, f, err)
	byName := map[string]api.Asset{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(images))) {
		f, err := s.Image(name)
		byName[name] = describe(name, s.imagePath(name), f, err)
	}
	return kernel, byName
}

// open opens a regular file for reading and lets check look at it.
func open(what, path, target string, check func(*os.File) error) (*os.File, error) {
	remedy := fmt.Sprintf("run `%s`, or name another with thawd's flags", target)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, api.Errorf(api.CodeAssetMissing, "%s is missing: %s", what, path).WithRemedy("%s", remedy)
	}
	if err != nil {
		return nil, api.Errorf(api.CodeAssetMissing, "%s cannot be opened", what).WithCause(err).WithRemedy("%s", remedy)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", path)
	}
	if err == nil && check != nil {
		err = check(f)
	}
	if err != nil {
		f.Close()
		return nil, api.Errorf(api.CodeAssetInvalid, "%s is unusable: %s", what, path).WithCause(err).WithRemedy("%s", remedy)
	}
	return f, nil
}

// checkKernel accepts an x86-64 ELF image whose segments are all there, or a
// bzImage. The VMM, which loads it, checks everything again.
func checkKernel(f *os.File) error {
	var head [0x206]byte
	if _, err := f.ReadAt(head[:], 0); err != nil {
		return fmt.Errorf("too short for a kernel: %w", err)
	}
	if string(head[:4]) != elf.ELFMAG {
		// Linux x86 boot protocol: the magic "HdrS" at 0x202.
		if string(head[0x202:0x206]) == "HdrS" {
			return nil
		}
		return errors.New("neither an ELF file nor a bzImage")
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return fmt.Errorf("not a valid ELF file: %w", err)
	}
	if e.Machine != elf.EM_X86_64 || e.Class != elf.ELFCLASS64 {
		return fmt.Errorf("kernel is for %s, not x86-64", e.Machine)
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && (p.Off > uint64(st.Size()) || p.Filesz > uint64(st.Size())-p.Off) {
			return errors.New("kernel is truncated")
		}
	}
	return nil
}

// EROFS superblock (Documentation/filesystems/erofs.rst): at byte 1024, magic
// first, log2 of the block size at 12, number of blocks at 36.
const (
	erofsSuper  = 1024
	erofsMagic  = 0xE0F5E1E2
	erofsBits   = 12
	erofsBlocks = 36
)

// checkImage accepts an EROFS file system that is as long as it says.
func checkImage(f *os.File) error {
	var super [128]byte
	if _, err := f.ReadAt(super[:], erofsSuper); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("image is truncated")
		}
		return err
	}
	if binary.LittleEndian.Uint32(super[:]) != erofsMagic {
		return errors.New("not an EROFS image")
	}
	bits := super[erofsBits]
	if bits < 9 || bits > 16 {
		return fmt.Errorf("EROFS block size of 2^%d bytes", bits)
	}
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if want := int64(binary.LittleEndian.Uint32(super[erofsBlocks:])) << bits; st.Size() < want {
		return fmt.Errorf("image is truncated: %d of %d bytes", st.Size(), want)
	}
	return nil
}
