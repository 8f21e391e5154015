package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"thaw/broker/boot"
	"thaw/broker/fleet/files"
	"thaw/guestinit/agentproto"
	"thaw/snapshot/layer"
	"thaw/snapshot/store"
	"thaw/vmm/vmmproc"
)

// building is a template in the making.
type building struct {
	done chan struct{} // closed when the others are set
	id   string
	err  error
}

// Template finds the template of an image in a class, or builds it, which takes
// seconds: a cold boot, warm interpreters, and all memory that is not needed given
// back. One caller builds, others wait; the build goes on when they give up.
func (f *Fleet) Template(ctx context.Context, image string, c Class) (string, error) {
	key, err := f.templateKey(image, c)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	b := f.templates[key]
	if b == nil {
		if f.closed {
			f.mu.Unlock()
			return "", ErrClosed
		}
		b = &building{done: make(chan struct{})}
		f.templates[key] = b
		f.work.Go(func() {
			b.id, b.err = f.findOrBuild(f.ctx, key, image, c)
			f.mu.Lock()
			delete(f.templates, key)
			f.mu.Unlock()
			close(b.done)
		})
	}
	f.mu.Unlock()
	select {
	case <-b.done:
	case <-ctx.Done():
		return "", fmt.Errorf("fleet: wait for template: %w", context.Cause(ctx))
	}
	if b.err == nil {
		f.pool.Use(c, b.id)
	}
	return b.id, b.err
}

// templateKey is a digest of all that a template depends on.
func (f *Fleet) templateKey(image string, c Class) (string, error) {
	p, err := f.fingerprint(image)
	if err != nil {
		return "", err
	}
	init, err := os.Open(f.cfg.Init)
	if err != nil {
		return "", fmt.Errorf("fleet: open guest's init: %w", err)
	}
	defer init.Close()
	sum, err := f.digests.Of(init)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "%+v %s %s %s %d", p, image, c, sum, f.cfg.DiskBytes)
	return hex.EncodeToString(h.Sum(nil)), nil
}

func (f *Fleet) findOrBuild(ctx context.Context, key, image string, c Class) (string, error) {
	for _, i := range f.cfg.Store.List("") {
		// An imported template has the label that its archive says: it is its tenant's alone.
		if i.Err == nil && i.Manifest.Tenant == "" && i.Manifest.Kind == store.Template && i.Manifest.Labels[labelKey] == key {
			return i.ID, nil
		}
	}
	return f.buildTemplate(ctx, key, image, c)
}

// buildTemplate boots a machine and makes it a template.
func (f *Fleet) buildTemplate(ctx context.Context, key, image string, c Class) (_ string, err error) {
	t := &templateBuild{f: f, image: image, class: c, clock: startClock()}
	defer t.close()
	if err := t.boot(ctx); err != nil {
		return "", err
	}
	if err := t.warmUp(ctx); err != nil {
		return "", err
	}
	if err := t.settle(ctx); err != nil {
		return "", err
	}
	if err := t.save(ctx); err != nil {
		return "", err
	}
	m, err := t.commit(ctx, key)
	if err != nil {
		return "", err
	}
	// What was just made is the most likely to be used: it stays in memory.
	f.images.cache(m.Memory[0].Digest, t.memory)
	t.record.Op, t.record.Snapshot, t.record.Class = OpTemplate, m.ID, c
	f.note(&t.record, t.clock)
	return m.ID, nil
}

// templateBuild is the state of one build.
type templateBuild struct {
	f     *Fleet
	image string
	class Class
	clock *clock

	machine   *boot.Machine
	memory    *os.File // memfd
	disk, top *os.File // what the machine has written; an empty layer that lets it be frozen
	state     *os.File
	saved     vmmproc.Saved
	warm      map[string]uint64
	record    Record
}

func (t *templateBuild) close() {
	if t.machine != nil {
		t.f.logLeft("template", t.machine.Close(context.Background()))
	}
	for _, f := range []*os.File{t.memory, t.disk, t.top, t.state} {
		if f != nil {
			f.Close()
		}
	}
}

// boot starts the machine.
func (t *templateBuild) boot(ctx context.Context) (err error) {
	size := t.class.MemoryMiB * mib
	if t.memory, err = layer.NewMemfd("thaw-template", size); err != nil {
		return err
	}
	// A VMM that shrank it could make whoever maps it fault.
	if _, err := unix.FcntlInt(t.memory.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		return fmt.Errorf("fleet: seal size of memory: %w", err)
	}
	for _, to := range []**os.File{&t.disk, &t.top} {
		if *to, err = boot.ScratchDisk(t.f.cfg.Yard.Dir(), t.f.cfg.DiskBytes); err != nil {
			return err
		}
	}
	t.machine, err = t.f.booter.Boot(ctx, boot.Spec{
		ID: randomName("template-"), Image: t.image, VCPUs: t.class.VCPUs, MemoryMiB: t.class.MemoryMiB, DiskBytes: t.f.cfg.DiskBytes,
		Memory: t.memory, Disk: t.disk,
	})
	t.clock.done("boot")
	return err
}

// How long the guest's own start-up work is given to end, and the balloon to take
// what is free.
const (
	settleTime   = 300 * time.Millisecond
	quietTime    = 100 * time.Millisecond
	reclaimTime  = 10 * time.Second
	reclaimPause = 20 * time.Millisecond
	reportTime   = 5 * time.Second
	reportStill  = 15 // pauses
)

// settle freezes the machine with little in its memory: what is free is taken by the
// balloon, which makes holes of it, and given back.
func (t *templateBuild) settle(ctx context.Context) error {
	select {
	case <-time.After(settleTime):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	t.clock.done("settle")
	frozen, err := t.machine.Client().Freeze(ctx, agentproto.FreezeRequest{ReportFree: true})
	if err != nil {
		return fmt.Errorf("fleet: freeze template: %w: %w", ErrNotFrozen, err)
	}
	t.clock.done("freeze")
	// With less left the guest would give up files that it has just read.
	margin := 32 + t.class.MemoryMiB/64
	if err := t.reclaim(ctx, frozen.FreeBytes/mib-margin); err != nil {
		return err
	}
	t.clock.done("reclaim")
	// A connection that is open now would be reset in every machine that is restored,
	// before the guest takes another.
	t.machine.Client().CloseIdle()
	time.Sleep(quietTime)
	t.clock.done("quiet")
	return nil
}

// reclaim has the balloon take that many MiB, as far as it gets, and give them back.
func (t *templateBuild) reclaim(ctx context.Context, want int64) error {
	if want <= 0 {
		return nil
	}
	p := t.machine.Process()
	if err := p.SetBalloon(ctx, uint64(want)); err != nil {
		return err
	}
	before, err := t.allocated()
	if err != nil {
		return err
	}
	// Until the file shrinks no more: the guest may have less to give than it said.
	for deadline, still := time.Now().Add(reclaimTime), 0; still < 5 && time.Now().Before(deadline); {
		time.Sleep(reclaimPause)
		now, err := t.allocated()
		if err != nil {
			return err
		}
		if still++; now < before {
			still = 0
		}
		before = now
	}
	reported, err := t.reported(ctx)
	if err != nil {
		return err
	}
	if err := p.SetBalloon(ctx, 0); err != nil {
		return err
	}
	time.Sleep(settleTime)
	// The tuned kernel reports all of it at once, and knows then that it is zero.
	if _, err := t.machine.Client().Freeze(ctx, agentproto.FreezeRequest{ReportFree: true}); err != nil {
		return fmt.Errorf("fleet: report what is free in a template: %w", err)
	}
	return t.awaitReports(ctx, reported)
}

// awaitReports waits until the guest has reported what came back out of the balloon
// as free. Else every machine of the template would do it, some milliseconds of processor
// time each. A stock kernel reports in parts, one every two seconds: of those the first is
// waited for; with much memory the machines report the others.
func (t *templateBuild) awaitReports(ctx context.Context, before uint64) error {
	last := before
	for deadline, still := time.Now().Add(reportTime), 0; last == before || still < reportStill; still++ {
		select {
		case <-time.After(reclaimPause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if time.Now().After(deadline) {
			return nil // a guest without free page reporting
		}
		now, err := t.reported(ctx)
		if err != nil {
			return err
		}
		if now != last {
			last, still = now, 0
		}
	}
	return nil
}

// reported is how many bytes the guest has reported as free so far.
func (t *templateBuild) reported(ctx context.Context) (uint64, error) {
	stats, err := t.machine.Process().Stats(ctx)
	if err != nil {
		return 0, fmt.Errorf("fleet: look at the balloon: %w", err)
	}
	return stats["balloon.reported_bytes"], nil
}

// allocated is how many bytes of the memory exist.
func (t *templateBuild) allocated() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(t.memory.Fd()), &st); err != nil {
		return 0, fmt.Errorf("fleet: look at memory: %w", err)
	}
	return st.Blocks * 512, nil
}

// save writes the machine's state and ends it: from then on nobody writes its memory.
func (t *templateBuild) save(ctx context.Context) (err error) {
	if t.state, err = layer.NewMemfd("thaw-state", stateSize); err != nil {
		return err
	}
	if t.saved, err = t.machine.Process().Save(ctx, vmmproc.SaveSpec{State: t.state, Tops: []*os.File{t.top}}); err != nil {
		return fmt.Errorf("fleet: save template: %w", err)
	}
	t.clock.done("save", t.saved.Phases...)
	err = t.machine.Close(ctx)
	t.machine = nil
	if err != nil {
		return err
	}
	t.clock.done("end machine")
	size := t.class.MemoryMiB * mib
	zero, left, err := files.PunchZeros(t.memory, size)
	if err != nil {
		return err
	}
	t.record.ZeroPages, t.record.Pages, t.record.Pause = zero, left, ms(t.saved.Pause)
	t.clock.done("punch holes")
	if _, err := layer.Collapse(t.memory, size); err != nil {
		return err
	}
	t.clock.done("collapse")
	return layer.Seal(t.memory)
}

// commit puts the template into the store.
func (t *templateBuild) commit(ctx context.Context, key string) (*store.Manifest, error) {
	print, err := t.f.fingerprint(t.image)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{labelKey: key, labelImage: t.image}
	for runtime, id := range t.warm {
		labels[labelWarm+runtime] = strconv.FormatUint(id, 10)
	}
	disks, err := t.disks(ctx, print.Image)
	if err != nil {
		return nil, err
	}
	d, err := t.f.cfg.Store.Begin(store.Spec{
		Kind: store.Template, Name: t.image + "-" + t.class.String(), Labels: labels, Fingerprint: print,
		Machine: store.Machine{VCPUs: t.class.VCPUs, MemoryBytes: uint64(t.class.MemoryMiB) * mib},
	})
	if err != nil {
		return nil, err
	}
	m, err := d.Commit(ctx, store.Content{
		State: t.state, StateBytes: t.saved.StateBytes, Memory: t.memory, Disks: disks,
		Record: store.Record{Pause: t.saved.Pause, Consistent: time.Now().UTC()},
	})
	t.clock.done("store")
	return m, err
}

// disks describes the disks, with what lies outside the store.
func (t *templateBuild) disks(ctx context.Context, imageDigest string) ([]store.DiskContent, error) {
	image, err := t.f.cfg.Assets.Image(t.image)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	info, err := image.Stat()
	if err != nil {
		return nil, fmt.Errorf("fleet: look at image: %w", err)
	}
	scratch, err := boot.ScratchTemplate(ctx, t.f.cfg.DiskBytes)
	if err != nil {
		return nil, err
	}
	defer scratch.Close()
	sum, err := layer.Measure(ctx, scratch, t.f.cfg.DiskBytes)
	if err != nil {
		return nil, err
	}
	size := t.f.cfg.DiskBytes
	return []store.DiskContent{
		{ID: imageDisk, ReadOnly: true, Size: info.Size(), External: []store.Ref{{
			External: externalImage + t.image, Size: info.Size(), Digest: imageDigest,
		}}},
		{ID: writableDisk, Size: size, Layer: t.disk, External: []store.Ref{{
			External: externalScratch + strconv.FormatInt(size, 10), Size: size, Digest: sum.Root().String(),
		}}},
	}, nil
}
