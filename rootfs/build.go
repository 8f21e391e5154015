package rootfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"thaw/internal/cache"
)

// imageKind is the cache kind of finished images, and imageFormat changes when
// the code that puts layers together changes what it makes.
const (
	imageKind   = "image"
	imageFormat = "1"
)

// Image is a finished image in the cache.
type Image struct {
	Name     string
	Path     string // image.erofs; manifest.json and sbom.spdx.json lie beside it
	Manifest Manifest
}

// Build returns the image python, node, dual or bench, from the cache or newly made
// with the options of the environment. It says on progress (may be nil) what it
// does. Making an image needs root and Debian's package archive.
func Build(ctx context.Context, name string, progress io.Writer) (*Image, error) {
	return BuildWith(ctx, name, OptionsFromEnv(), progress)
}

// BuildWith is Build with options.
func BuildWith(ctx context.Context, name string, opts Options, progress io.Writer) (*Image, error) {
	plans, err := opts.plans(name)
	if err != nil {
		return nil, err
	}
	b, err := newBuilder(opts, progress)
	if err != nil {
		return nil, err
	}
	for _, p := range plans {
		dir, ok, err := cache.Lookup(imageKind, b.imageKey(p))
		if err != nil {
			return nil, fmt.Errorf("rootfs: look for image %s: %w", name, err)
		}
		if ok {
			return b.open(dir)
		}
	}
	return b.make(ctx, plans)
}

// builder makes images by one recipe and lock.
type builder struct {
	recipe       recipe
	recipeDigest string
	locks        *locks
	opts         Options
	progress     *progress
}

func newBuilder(opts Options, w io.Writer) (*builder, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	r, err := loadRecipe()
	if err != nil {
		return nil, err
	}
	digest, err := digestFS(recipeFS)
	if err != nil {
		return nil, err
	}
	l, err := loadLocks(opts.LockDir)
	if err != nil {
		return nil, err
	}
	return &builder{recipe: r, recipeDigest: digest, locks: l, opts: opts, progress: newProgress(w)}, nil
}

// digestFS returns a digest of every file's name and content.
func digestFS(fsys fs.FS) (string, error) {
	var parts []string
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := fs.ReadFile(fsys, name)
		parts = append(parts, name, string(raw))
		return err
	})
	if err != nil {
		return "", fmt.Errorf("rootfs: read recipe: %w", err)
	}
	return cache.Key(parts...), nil
}

// imageKey is decided by recipe, locks, sources and writer. Where Debian has
// drifted from the lock it does not tell which versions are inside: the first
// image made stays the image of this lock on this machine until the lock
// changes; Manifest.SHA256 tells images apart everywhere.
func (b *builder) imageKey(p plan) string {
	parts := []string{imageFormat, layerFormat, p.name, string(p.python), string(p.node), b.recipeDigest, writerVersion()}
	for _, file := range slices.Sorted(maps.Keys(b.locks.raw)) {
		parts = append(parts, b.locks.digest(file))
	}
	return cache.Key(parts...)
}

// make tries plans in turn, leaving out those that need a registry which was
// not reached.
func (b *builder) make(ctx context.Context, plans []plan) (*Image, error) {
	var unreached *unreachedError
	var dead []Source
	for _, p := range plans {
		if slices.Contains(dead, p.python) || slices.Contains(dead, p.node) {
			continue
		}
		layers, err := b.fetch(ctx, p)
		if errors.As(err, &unreached) {
			b.progress.say("%s: registry %s not reached", p.name, unreached.source)
			dead = append(dead, unreached.source)
			continue
		}
		if err != nil {
			return nil, err
		}
		dir, err := cache.Get(ctx, imageKind, b.imageKey(p), func(ctx context.Context, dir string) error {
			return b.assemble(ctx, dir, p, layers)
		})
		if err != nil {
			return nil, err
		}
		return b.open(dir)
	}
	return nil, fmt.Errorf("rootfs: %w: %w", ErrPackage, unreached)
}

// registryLayers are what a plan takes from language registries.
type registryLayers struct{ wheels, node *layer }

// fetch gets a plan's packages from the language registries, which decides
// whether the plan can be followed, before anything slow is done.
func (b *builder) fetch(ctx context.Context, p plan) (registryLayers, error) {
	var got registryLayers
	if p.python == SourcePyPI {
		l, err := b.wheelsLayer(ctx)
		if err != nil {
			return got, err
		}
		got.wheels = &l
	}
	if p.node == SourceNPM {
		l, err := b.nodeLayer(ctx)
		if err != nil {
			return got, err
		}
		got.node = &l
	}
	return got, nil
}

// assemble puts the layers of p together in dir: image, manifest, SBOM.
func (b *builder) assemble(ctx context.Context, dir string, p plan, got registryLayers) (err error) {
	debian, err := b.debianLayer(ctx, p.components())
	if err != nil {
		return err
	}
	layers := []layer{debian}
	if got.wheels != nil {
		layers = append(layers, *got.wheels)
	}
	if p.python != "" {
		bytecode, err := b.bytecodeLayer(ctx, debian, got.wheels)
		if err != nil {
			return err
		}
		layers = append(layers, bytecode)
	}
	if got.node != nil {
		layers = append(layers, *got.node)
	}
	defer b.progress.step(&err, "%s: writing EROFS", p.name)()
	m := b.manifest(p, layers)
	t, err := b.compose(p, m, layers)
	if err != nil {
		return err
	}
	if m.SHA256, m.Size, err = writeEROFS(t, filepath.Join(dir, "image.erofs")); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "sbom.spdx.json"), sbom(m)); err != nil {
		return err
	}
	return writeJSON(filepath.Join(dir, "manifest.json"), m)
}

// manifest says what the layers hold; digest and size of the image come later.
func (b *builder) manifest(p plan, layers []layer) Manifest {
	m := Manifest{
		Name:     p.name,
		Epoch:    b.recipe.Epoch,
		Lock:     Lock{Status: LockMatched},
		Inputs:   map[string]string{"recipe": b.recipeDigest},
		Sources:  map[string]Source{},
		Versions: map[string]string{},
		Tools:    map[string]string{"go-erofs": writerVersion()},
		Env:      b.recipe.env(p),
	}
	for file, raw := range b.locks.raw {
		sum := sha256.Sum256(raw)
		m.Inputs["lock/"+file] = hex.EncodeToString(sum[:])
	}
	if p.python != "" {
		m.Sources["python"] = p.python
	}
	if p.node != "" {
		m.Sources["node"] = p.node
	}
	for _, l := range layers {
		m.Packages = append(m.Packages, l.info.Packages...)
		m.Lock.Drift = append(m.Lock.Drift, l.info.Drift...)
		maps.Copy(m.Tools, l.info.Tools)
		maps.Copy(m.Versions, l.info.Versions)
	}
	slices.SortStableFunc(m.Packages, comparePackages)
	if len(m.Lock.Drift) > 0 {
		m.Lock.Status = LockDrifted
	}
	return m
}

// open reads a finished image and checks that it is whole.
func (b *builder) open(dir string) (*Image, error) {
	image := &Image{Path: filepath.Join(dir, "image.erofs")}
	if err := readJSON(filepath.Join(dir, "manifest.json"), &image.Manifest); err != nil {
		return nil, fmt.Errorf("rootfs: open image: %w: %w", ErrDamaged, err)
	}
	m := image.Manifest
	image.Name = m.Name
	st, err := os.Stat(image.Path)
	if err != nil {
		return nil, fmt.Errorf("rootfs: open image: %w: %w", ErrDamaged, err)
	}
	if st.Size() != m.Size {
		return nil, fmt.Errorf("rootfs: open image: %w: %s has %d bytes, its manifest says %d (remedy: remove %s)",
			ErrDamaged, image.Path, st.Size(), m.Size, dir)
	}
	if m.Lock.Status == LockDrifted {
		if b.opts.Locked {
			return nil, &DriftError{m.Lock.Drift}
		}
		b.progress.say("%s: warning: Debian has moved on from the lock, made with: %s", m.Name, driftList(m.Lock.Drift))
	}
	return image, nil
}
