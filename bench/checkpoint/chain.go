package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thaw/api"
	"thaw/bench/stats"
)

const (
	// depth is how many checkpoints the deep chain has.
	depth = 100
	// chunk is what is written before each of them, in bytes.
	chunk = 64 << 10
)

const (
	chainBefore = `import os
data = bytearray(%d)
print(len(data))`
	chainCell = `data[%d:%d] = os.urandom(%d)
print("ok")`
)

// chain measures restores of a checkpoint that lies on ninety-nine others, and of one
// that holds the same bytes alone.
func (r *rig) chain(ctx context.Context) ([]Metric, error) {
	r.say("%d restores at depth %d and at depth 1", r.n, depth)
	deep, deepDepth, err := r.chainOf(ctx, depth)
	if err != nil {
		return nil, err
	}
	flat, flatDepth, err := r.chainOf(ctx, 1)
	if err != nil {
		return nil, err
	}
	if deepDepth != depth || flatDepth != 1 {
		return nil, fmt.Errorf("checkpoint: chains have depths %d and %d, not %d and 1", deepDepth, flatDepth, depth)
	}
	took := map[string][]float64{}
	parts := map[string]*phases{deep: {}, flat: {}}
	for i := range r.n + 2 { // the first two do not count: memory is brought in
		ids := []string{deep, flat}
		for j := range ids {
			id := ids[(i+j)%2]
			v, rec, err := r.restoreOf(ctx, id)
			if err != nil {
				return nil, err
			}
			if i < 2 {
				continue
			}
			took[id] = append(took[id], v)
			parts[id].add(rec.Phases)
			if err := r.raw.Add(chainDepth, map[string]any{"depth": map[string]int{deep: depth, flat: 1}[id], "ms": v, "record": rec}); err != nil {
				return nil, err
			}
		}
	}
	m := ratio(chainDepth, took[deep], took[flat])
	m.Detail = fmt.Sprintf("depth %d %.2f ms (%s), depth 1 %.2f ms (%s)", depth, stats.Median(took[deep]), parts[deep].text(), stats.Median(took[flat]), parts[flat].text())
	m.Phases = parts[deep].medians()
	return []Metric{m}, r.forgetAll(ctx)
}

// chainOf writes the same amount in as many cells, with as many checkpoints as there are
// links, and returns the last one.
func (r *rig) chainOf(ctx context.Context, links int) (snapshot string, deep int, err error) {
	err = r.with(ctx, api.SandboxRequest{Image: imagePython}, func(s api.Sandbox) error {
		if _, err := r.cell(ctx, s, fmt.Sprintf(chainBefore, depth*chunk)); err != nil {
			return err
		}
		for i := range depth {
			if _, err := r.cell(ctx, s, fmt.Sprintf(chainCell, i*chunk, (i+1)*chunk, chunk)); err != nil {
				return err
			}
			if i < depth-links {
				continue
			}
			c, err := r.client.Checkpoint(ctx, s.ID, api.CheckpointRequest{Durable: i == depth-1})
			if err != nil {
				return err
			}
			snapshot, deep = c.Snapshot.ID, c.Snapshot.Depth
		}
		return nil
	})
	return snapshot, deep, err
}

// restoreOf makes a machine of a snapshot in a generic shell, and destroys it.
func (r *rig) restoreOf(ctx context.Context, snapshot string) (took float64, rec api.Record, err error) {
	if err := r.idle(ctx); err != nil {
		return 0, rec, err
	}
	begin := time.Now()
	s, err := r.client.CreateSandbox(ctx, api.SandboxRequest{Snapshot: snapshot, Shell: api.ShellGeneric})
	if err != nil {
		return 0, rec, err
	}
	took = ms(time.Since(begin))
	if s.Record.Shell != api.ShellGeneric {
		err = fmt.Errorf("checkpoint: a restore got a %s shell, not a generic one", s.Record.Shell)
	}
	return took, s.Record, errors.Join(err, r.remove(ctx, s))
}

// trivialDelta measures what a checkpoint after one small cell takes on disk.
func (r *rig) trivialDelta(ctx context.Context) ([]Metric, error) {
	r.say("%d checkpoints after x = 1", r.n)
	var sizes, pages, zeros []float64
	for len(sizes) < r.n {
		err := r.with(ctx, api.SandboxRequest{Image: imagePython}, func(s api.Sandbox) error {
			for i := range min(chainLength, r.n-len(sizes)) + 1 {
				if _, err := r.cell(ctx, s, "x = 1"); err != nil {
					return err
				}
				c, err := r.client.Checkpoint(ctx, s.ID, api.CheckpointRequest{Durable: true})
				if err != nil {
					return err
				}
				if i == 0 {
					continue // holds what the restore and the first cell changed
				}
				if c.Snapshot.Bytes <= 0 {
					return fmt.Errorf("checkpoint: a snapshot takes %d bytes on disk", c.Snapshot.Bytes)
				}
				sizes = append(sizes, float64(c.Snapshot.Bytes)/1024)
				pages, zeros = append(pages, float64(c.Record.Pages)), append(zeros, float64(c.Record.ZeroPages))
				if err := r.raw.Add(deltaTrivial, c); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if err := r.forgetAll(ctx); err != nil {
			return nil, err
		}
	}
	m := distribution(deltaTrivial, unitKiB, sizes)
	m.Detail = fmt.Sprintf("%.0f pages stored, %.0f became zero", stats.Median(pages), stats.Median(zeros))
	return []Metric{m}, nil
}
