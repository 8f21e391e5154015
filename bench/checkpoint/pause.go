package checkpoint

import (
	"context"
	"fmt"

	"thaw/api"
	"thaw/bench/stats"
)

const (
	mib      = 1 << 20
	pageSize = 4096
	// chainLength is how many checkpoints are made of one sandbox: then all of them are
	// removed, since they take disk.
	chainLength = 8
)

// dirtying is a checkpoint after so many bytes were written.
type dirtying struct {
	metric    string
	bytes     int
	copyAhead *bool // nil: the daemon's choice
	n         int
}

func (r *rig) pause8MB(ctx context.Context) ([]Metric, error) {
	return r.pauses(ctx, dirtying{metric: pause8, bytes: 8 * mib, n: r.n})
}

func (r *rig) pause256MB(ctx context.Context) ([]Metric, error) {
	ahead := true
	return r.pauses(ctx, dirtying{metric: pause256, bytes: 256 * mib, copyAhead: &ahead, n: pick(r.cfg.Quick, min(r.n, 10), r.n)})
}

// paused is one checkpoint. Times are in milliseconds.
type paused struct {
	Pause  float64    `json:"pause_ms"`
	Before float64    `json:"write_before_ms"` // writing all of it once more, in the guest
	After  float64    `json:"write_after_ms"`  // the same, first thing after the checkpoint
	Record api.Record `json:"record"`
}

const (
	// dirtyBefore makes the bytes, each page of them written.
	dirtyBefore = `import time
import numpy as np
data = np.ones(%d, dtype=np.uint8)
def write():
    global data
    begin = time.perf_counter()
    data += 1
    return (time.perf_counter() - begin) * 1000
print(write())`
	dirtyCell = "print(write())"
)

// pauses measures the pause of checkpoints.
func (r *rig) pauses(ctx context.Context, d dirtying) ([]Metric, error) {
	lower, err := r.floorOf(ctx)
	if err != nil {
		return nil, err
	}
	r.say("%d checkpoints after %d MiB were written", d.n, d.bytes/mib)
	var all []paused
	var parts phases
	for len(all) < d.n {
		some, err := r.pauseChain(ctx, d, min(chainLength, d.n-len(all)), &parts)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	column := func(of func(paused) float64) []float64 {
		var list []float64
		for _, p := range all {
			list = append(list, of(p))
		}
		return list
	}
	last := all[len(all)-1].Record
	pages := int(last.Pages)
	ahead := column(func(p paused) float64 { ms, _ := phaseMS(p.Record, "save/save.copy_ahead"); return ms })
	if stats.Median(ahead) > 0 {
		pages = 0
	}
	least, err := lower.Pause(min(d.n, floorSamples), pages)
	if err != nil {
		return nil, err
	}
	m := distribution(d.metric, unitMilliseconds, column(func(p paused) float64 { return p.Pause })).withFloor(milliseconds(least))
	m.Detail = fmt.Sprintf("%s, %d pages; copying ahead %.1f, freeze %.1f, all %.1f; writing it all again in the guest: %.1f before, %.1f after",
		last.Tracker, last.Pages, stats.Median(ahead),
		stats.Median(column(func(p paused) float64 { return p.Record.FreezeMS })),
		stats.Median(column(func(p paused) float64 { return p.Record.TotalMS })),
		stats.Median(column(func(p paused) float64 { return p.Before })), stats.Median(column(func(p paused) float64 { return p.After })))
	m.Phases = parts.medians()
	return []Metric{m}, nil
}

// pauseChain makes n checkpoints of one sandbox, each after all has been written, and
// removes them.
func (r *rig) pauseChain(ctx context.Context, d dirtying, n int, parts *phases) (list []paused, err error) {
	err = r.with(ctx, api.SandboxRequest{Image: imagePython}, func(s api.Sandbox) error {
		if _, err := r.number(ctx, s, fmt.Sprintf(dirtyBefore, d.bytes)); err != nil {
			return err
		}
		// What the interpreter's start wrote is in the first one, which does not count.
		for i := range n + 1 {
			one, err := r.pause(ctx, s, d)
			if err != nil {
				return err
			}
			if i == 0 {
				continue
			}
			list = append(list, one)
			parts.add(one.Record.Phases)
			if err := r.raw.Add(d.metric, one); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list, r.forgetAll(ctx)
}

// pause writes all, and makes a checkpoint. The next clock starts only when that is
// durable.
func (r *rig) pause(ctx context.Context, s api.Sandbox, d dirtying) (one paused, err error) {
	// Twice: the second time nothing is new.
	for range 2 {
		if one.Before, err = r.number(ctx, s, dirtyCell); err != nil {
			return one, err
		}
	}
	if err := r.idle(ctx); err != nil {
		return one, err
	}
	c, err := r.client.Checkpoint(ctx, s.ID, api.CheckpointRequest{CopyAhead: d.copyAhead, Durable: true})
	if err != nil {
		return one, err
	}
	one.Pause, one.Record = c.Record.PauseMS, c.Record
	if want := int64(d.bytes / pageSize); c.Record.Pages < want {
		return one, fmt.Errorf("checkpoint: a checkpoint has %d pages although %d were written", c.Record.Pages, want)
	}
	one.After, err = r.number(ctx, s, dirtyCell)
	return one, err
}

// forgetAll removes all checkpoints.
func (r *rig) forgetAll(ctx context.Context) error {
	list, err := r.client.Snapshots(ctx)
	if err != nil {
		return err
	}
	mine := map[string]bool{}
	for _, s := range list {
		if s.Kind == api.KindCheckpoint {
			mine[s.ID] = true
		}
	}
	for _, s := range list {
		if mine[s.ID] && !mine[s.Parent] {
			if err := r.forget(ctx, s.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
