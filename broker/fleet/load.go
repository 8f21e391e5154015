package fleet

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"thaw/broker/boot"
	"thaw/broker/fleet/files"
	"thaw/snapshot/format"
	"thaw/snapshot/layer"
	"thaw/snapshot/store"
)

const (
	// Labels of snapshots that are the fleet's own.
	labelKey   = "thaw.template" // of templates: what they are made of
	labelImage = "thaw.image"    // name of the image
	labelWarm  = "thaw.warm."    // + runtime: exec id of the warm interpreter

	// Names of layers outside the store.
	externalImage   = "image:"   // + name
	externalScratch = "scratch:" // + bytes
)

// load opens a snapshot of the store and makes it known.
func (x *images) load(ctx context.Context, id string) error {
	c, err := x.f.cfg.Store.Resolve(ctx, id)
	if err != nil {
		return err
	}
	defer c.Close()
	here, err := x.f.fingerprint(c.Manifest.Labels[labelImage])
	if err != nil {
		return err
	}
	if err := c.Manifest.Check(here); err != nil {
		return err
	}
	im, err := x.open(ctx, c)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[id] = im
	x.tick++
	im.used = x.tick
	x.trim()
	return nil
}

// open makes the image of a chain.
func (x *images) open(ctx context.Context, c *store.Chain) (_ *image, err error) {
	m := c.Manifest
	im := &image{
		id: m.ID, parent: m.Parent, template: m.Memory[0].Snapshot, stored: true, depth: m.Record.Depth, warm: warmOf(m.Labels), imageName: m.Labels[labelImage],
		class: Class{MemoryMiB: int64(m.Machine.MemoryBytes / mib), VCPUs: m.Machine.VCPUs}, data: c.Base,
	}
	defer func() {
		if err != nil {
			im.close()
		}
	}()
	if im.state, err = copyState(c.State); err != nil {
		return nil, err
	}
	memory, err := x.f.hot.Memory(ctx, x.f.cfg.Store, c)
	if err != nil {
		return nil, err
	}
	im.base, im.overlays = shareHot(memory)
	im.memory = memory.Index
	for _, d := range c.Disks {
		out := disk{id: d.ID, readOnly: d.ReadOnly, size: d.Size}
		for i, f := range d.Files {
			l, err := x.f.openDiskLayer(ctx, d.Layers[i], f)
			if err != nil {
				return nil, err
			}
			out.layers = append(out.layers, l)
		}
		if im.disks = append(im.disks, out); !d.ReadOnly {
			im.diskSize = d.Size
		}
	}
	im.hot = x.hotOfTemplate(im.template)
	im.plan, err = planFile(im.memory, im.data, im.hot)
	return im, err
}

// copyState copies a state file, which was verified, into a sealed memfd: so that
// nothing that happens to the file reaches a restore.
func copyState(f *os.File) (*shared, error) {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, format.MaxFile))
	if err != nil {
		return nil, fmt.Errorf("fleet: read state: %w", err)
	}
	m, err := files.Sealed("thaw-state", b)
	if err != nil {
		return nil, err
	}
	return share(m), nil
}

// openDiskLayer takes over a layer of the store, or finds one that is outside of it.
func (f *Fleet) openDiskLayer(ctx context.Context, r store.Ref, stored *os.File) (*shared, error) {
	var file *os.File
	var err error
	switch name, image := strings.CutPrefix(r.External, externalImage); {
	case stored != nil:
		file, err = files.ReadOnly(stored)
	case image:
		// Its digest is part of the fingerprint, which was compared.
		file, err = f.cfg.Assets.Image(name)
	default:
		size, ok := strings.CutPrefix(r.External, externalScratch)
		n, perr := strconv.ParseInt(size, 10, 64)
		if !ok || perr != nil || n != r.Size {
			return nil, fmt.Errorf("fleet: disk layer %.60q is not known: %w", r.External, store.ErrIncompatible)
		}
		if file, err = boot.ScratchTemplate(ctx, n); err == nil {
			err = sameScratch(ctx, file, r)
		}
	}
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	return share(file), nil
}

// sameScratch compares the empty file system below a disk with the one that the
// snapshot was made on.
func sameScratch(ctx context.Context, f *os.File, r store.Ref) error {
	sum, err := layer.Measure(ctx, f, r.Size)
	if err != nil {
		return fmt.Errorf("fleet: scratch disk: %w", err)
	}
	if sum.Root().String() != r.Digest {
		return fmt.Errorf("fleet: scratch disk differs from the snapshot's: %w", store.ErrIncompatible)
	}
	return nil
}

// warmOf reads the labels of warm interpreters.
func warmOf(labels map[string]string) map[string]uint64 {
	warm := map[string]uint64{}
	for k, v := range labels {
		if runtime, ok := strings.CutPrefix(k, labelWarm); ok {
			if id, err := strconv.ParseUint(v, 10, 64); err == nil {
				warm[runtime] = id
			}
		}
	}
	return warm
}
