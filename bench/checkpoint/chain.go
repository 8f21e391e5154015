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
	// chains is how many of them are made: how long guests take to acknowledge can differ from
	// one to the next.
	chains = 5
)

const (
	chainBefore = `import hashlib, os
data = bytearray(%d)
print(len(data))`
	chainCell = `data[%d:%d] = os.urandom(%d)
print("ok")`
	chainSum = `print(hashlib.sha256(data).hexdigest())`
)

// chainRestore is one restore of the top of a chain.
type chainRestore struct {
	Chain  int        `json:"chain"`
	Depth  int        `json:"depth"`
	MS     float64    `json:"ms"`
	Record api.Record `json:"record"`
}

// chain measures restores of checkpoints that lie on ninety-nine others, and of the same
// ones when they have been merged and lie on the template alone.
func (r *rig) chain(ctx context.Context) ([]Metric, error) {
	shares := share(r.n, chains)
	r.say("%d restores of %d checkpoints at depth %d and, merged, at depth 1", r.n, len(shares), depth)
	took, parts := map[int][]float64{}, map[int]*phases{depth: {}, 1: {}}
	for i, n := range shares {
		list, err := r.chainOf(ctx, i, n)
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			took[one.Depth] = append(took[one.Depth], one.MS)
			parts[one.Depth].add(one.Record.Phases)
		}
	}
	m := ratio(chainDepth, took[depth], took[1])
	m.Detail = fmt.Sprintf("depth %d %.2f ms (%s), depth 1 %.2f ms (%s)", depth, stats.Median(took[depth]), parts[depth].text(), stats.Median(took[1]), parts[1].text())
	m.Phases = parts[depth].medians()
	return []Metric{m}, nil
}

// share parts n samples among at most so many groups, as evenly as it goes.
func share(n, groups int) []int {
	list := make([]int, min(n, groups))
	for i := range n {
		list[i%len(list)]++
	}
	return list
}

// chainOf makes a chain and restores its last checkpoint n times as it is, and n times
// merged. Nothing of it is left.
func (r *rig) chainOf(ctx context.Context, chain, n int) ([]chainRestore, error) {
	top, sum, err := r.makeChain(ctx)
	if err != nil {
		return nil, err
	}
	var list []chainRestore
	for _, at := range []int{depth, 1} {
		if at == 1 {
			if top, err = r.client.MergeSnapshot(ctx, top.ID); err != nil {
				return nil, err
			}
		}
		if top.Depth != at {
			return nil, fmt.Errorf("checkpoint: chain %d has depth %d, not %d", chain, top.Depth, at)
		}
		if err := r.sameData(ctx, top.ID, sum); err != nil {
			return nil, err
		}
		for i := range n + 1 { // nor does the first count: memory is brought in
			took, rec, err := r.restoreOf(ctx, top.ID)
			switch {
			case err != nil:
				return nil, err
			case rec.Depth != at:
				return nil, fmt.Errorf("checkpoint: a restore at depth %d was one at depth %d", at, rec.Depth)
			case i == 0:
				continue
			}
			one := chainRestore{chain, at, took, rec}
			if err := r.raw.Add(chainDepth, one); err != nil {
				return nil, err
			}
			list = append(list, one)
		}
	}
	return list, r.forgetAll(ctx)
}

// makeChain writes a part of an array in each of a hundred cells, with a checkpoint after
// each, and returns the last one and what the array's sum is.
func (r *rig) makeChain(ctx context.Context) (top api.Snapshot, sum string, err error) {
	err = r.with(ctx, api.SandboxRequest{Image: imagePython}, func(s api.Sandbox) error {
		if _, err := r.cell(ctx, s, fmt.Sprintf(chainBefore, depth*chunk)); err != nil {
			return err
		}
		for i := range depth {
			if _, err := r.cell(ctx, s, fmt.Sprintf(chainCell, i*chunk, (i+1)*chunk, chunk)); err != nil {
				return err
			}
			c, err := r.client.Checkpoint(ctx, s.ID, api.CheckpointRequest{Durable: i == depth-1})
			if err != nil {
				return err
			}
			top = c.Snapshot
		}
		sum, err = r.cell(ctx, s, chainSum)
		return err
	})
	return top, sum, err
}

// sameData makes a machine of a snapshot and compares its array's sum.
func (r *rig) sameData(ctx context.Context, snapshot, want string) error {
	return r.with(ctx, api.SandboxRequest{Snapshot: snapshot}, func(s api.Sandbox) error {
		got, err := r.cell(ctx, s, chainSum)
		if err == nil && got != want {
			err = fmt.Errorf("checkpoint: data of snapshot %s has the sum %.70q, not %.70q", snapshot, got, want)
		}
		return err
	})
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
