package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"thaw/broker/fleet/files"
	"thaw/snapshot/pageindex"
	"thaw/snapshot/store"
)

// maxImages is how many images that nobody uses stay open.
const maxImages = 64

// images keeps the snapshots that are in use, or were a short while ago.
type images struct {
	f *Fleet

	mu      sync.Mutex
	byID    map[string]*image   // protected by mu
	loading map[string]*loading // protected by mu
	tick    int64               // protected by mu
}

// loading is an image that is being opened from the store.
type loading struct {
	done chan struct{} // closed when the others are set
	err  error
}

// held is one use of an image. While it lasts the snapshot cannot be deleted.
type held struct {
	*image
	images *images

	lease *store.Lease // protected by images.mu; nil while the image is not in the store
	once  sync.Once
}

func newImages(f *Fleet) *images {
	return &images{f: f, byID: map[string]*image{}, loading: map[string]*loading{}}
}

// release ends the use.
func (h *held) release() {
	if h == nil {
		return
	}
	h.once.Do(func() {
		x := h.images
		x.mu.Lock()
		h.image.refs--
		delete(h.image.unleased, h)
		if h.lease != nil {
			h.lease.Release()
		}
		if h.image.refs == 0 && x.byID[h.image.id] != h.image {
			h.image.close() // it was forgotten meanwhile
		}
		x.trim()
		x.mu.Unlock()
	})
}

// get opens a snapshot, or finds it open. Errors are those of the store.
func (x *images) get(ctx context.Context, id string) (*held, error) {
	for {
		x.mu.Lock()
		if im := x.byID[id]; im != nil {
			h, err := x.hold(im)
			x.mu.Unlock()
			return h, err
		}
		l := x.loading[id]
		if l == nil {
			l = &loading{done: make(chan struct{})}
			x.loading[id] = l
			x.mu.Unlock()
			l.err = x.load(ctx, id)
			x.mu.Lock()
			delete(x.loading, id)
			x.mu.Unlock()
			close(l.done)
		} else {
			x.mu.Unlock()
			select {
			case <-l.done:
			case <-ctx.Done():
				return nil, fmt.Errorf("fleet: open snapshot %.40s: %w", id, context.Cause(ctx))
			}
		}
		// The other's context may be why it failed: then try by ourselves.
		if l.err != nil && (ctx.Err() != nil || !errors.Is(l.err, context.Canceled) && !errors.Is(l.err, context.DeadlineExceeded)) {
			return nil, l.err
		}
	}
}

// hold counts a use. Preconditions: mu is held.
func (x *images) hold(im *image) (*held, error) {
	if im.failed != nil {
		return nil, fmt.Errorf("fleet: snapshot %s: %w", im.id, im.failed)
	}
	h := &held{image: im, images: x}
	if im.stored {
		lease, err := x.f.cfg.Store.Lease(im.id)
		if err != nil { // deleted meanwhile
			x.forget(im)
			return nil, err
		}
		h.lease = lease
	} else {
		if im.unleased == nil {
			im.unleased = map[*held]bool{}
		}
		im.unleased[h] = true
	}
	im.refs++
	x.tick++
	im.used = x.tick
	return h, nil
}

// put makes a new image known and holds it.
func (x *images) put(im *image) (*held, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID[im.id] = im
	return x.hold(im)
}

// again counts one more use of an image that is used.
func (x *images) again(im *image) (*held, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.hold(im)
}

// cache gives the cache of memory a file that was stored under a digest, so that it is
// not read again. file stays the caller's.
func (x *images) cache(digest string, file *os.File) {
	f, err := files.Duplicate(file)
	if err == nil {
		if err = x.f.hot.Put(digest, f); err != nil {
			f.Close()
		}
	}
	if err != nil {
		x.f.cfg.Log.Debug("memory of a snapshot is not kept", "error", err)
	}
}

// settle notes whether an image got into the store. Those who use it since before have
// no lease: they get one.
func (x *images) settle(im *image, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	im.stored, im.failed = err == nil, err
	for h := range im.unleased {
		if err == nil {
			h.lease, _ = x.f.cfg.Store.Lease(im.id) // it is there since a moment ago
		}
	}
	im.unleased = nil
	if err == nil && (im.changed || im.layers() > maxLiveLayers) {
		// From the store it comes with its disks' layers folded.
		x.forget(im)
	}
	x.trim()
}

// maxLiveLayers is how many layers a disk of an image can have that is kept as the
// machine made it: each is a descriptor in every restore.
const maxLiveLayers = 34

// forget drops an image from the list; those who use it go on. Preconditions: mu is
// held.
func (x *images) forget(im *image) {
	delete(x.byID, im.id)
	if im.refs == 0 {
		im.close()
	}
}

// renew has the next use of a snapshot open it again, since its files in the store are
// others now; those who use it go on.
func (x *images) renew(id string) {
	x.mu.Lock()
	if l := x.loading[id]; l != nil { // begun before, perhaps: it may have the old files
		x.mu.Unlock()
		<-l.done
		x.mu.Lock()
	}
	defer x.mu.Unlock()
	switch im := x.byID[id]; {
	case im == nil:
	case im.stored:
		x.forget(im)
	default:
		im.changed = true
	}
}

// trim closes what nobody uses and has not been used for longest. Preconditions: mu
// is held.
func (x *images) trim() {
	for {
		var oldest *image
		idle := 0
		for _, im := range x.byID {
			if im.refs > 0 || !im.stored && im.failed == nil {
				continue
			}
			if idle++; oldest == nil || im.failed != nil || im.used < oldest.used {
				oldest = im
			}
		}
		full := idle > maxImages || x.f.hot.Stats().Bytes > x.f.cfg.HotBytes
		if oldest == nil || !full && oldest.failed == nil {
			return
		}
		x.forget(oldest)
	}
}

// close closes all images. Preconditions: none is used.
func (x *images) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, im := range x.byID {
		im.refs = 0
		x.forget(im)
	}
}

// planOf returns the image's plan, for one use: that for a job of a runtime, if it is known.
func (x *images) planOf(im *image, job string) *shared {
	x.mu.Lock()
	defer x.mu.Unlock()
	if plan := im.jobs[job]; plan != nil {
		return plan.use()
	}
	return im.plan.use()
}

// hotOf returns the pages that a machine of the image is going to write, as far as that
// is known; nil: not yet.
func (x *images) hotOf(im *image) *pageindex.Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	return im.hot
}

// hotOfTemplate is hotOf for a template that may not be open.
func (x *images) hotOfTemplate(id string) *pageindex.Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	if im := x.byID[id]; im != nil {
		return im.hot
	}
	return nil
}

// jobFailures is how often in all it may fail to find out what jobs of an image write: a
// busy host can be why, once.
const jobFailures = 3

// claimJob says whether nobody knows what a job of a runtime writes, or is finding it out:
// the caller does, then.
func (x *images) claimJob(im *image, runtime string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, tried := im.jobs[runtime]; tried {
		return false
	}
	if im.jobs == nil {
		im.jobs = map[string]*shared{}
	}
	im.jobs[runtime] = nil
	return true
}

// unclaimJob has somebody else try, unless it has failed too often.
func (x *images) unclaimJob(im *image, runtime string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if im.jobFailures++; im.jobFailures < jobFailures {
		delete(im.jobs, runtime)
	}
}

// setHot notes the pages that a machine of this image is going to write; job: for a job
// of that runtime.
func (x *images) setHot(im *image, hot *pageindex.Index, job string) error {
	plan, err := planFile(im.memory, im.data, hot)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if job == "" {
		im.plan, im.hot, plan = plan, hot, im.plan
	} else {
		im.jobs[job], plan = plan, im.jobs[job] // it was claimed
	}
	plan.release()
	return nil
}
