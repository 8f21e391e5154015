package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"thaw/api"
	"thaw/bench/floor"
)

// The cells that restored machines run. None is what is rehearsed.
const (
	pythonCell = "print(sum(range(1000)))"
	pythonOut  = "499500"
	pandasCell = `import numpy as np
import pandas as pd
sold = np.arange(20000)
df = pd.DataFrame({"city": sold * 7919 % 211, "sold": sold})
top = df.groupby("city").sold.sum().nlargest(3)
print("top", top.to_dict())`
	pandasOut = "top"
	nodeCell  = `console.log([1, 2, 3].map(x => x * x).reduce((a, b) => a + b))`
	nodeOut   = "14"
)

// restoring is a kind of restore.
type restoring struct {
	shell        api.Shell
	image        string
	source, want string
	ack, out     string // names of metrics; ack may be ""
	floor        func(*floor.Floor, int) ([]time.Duration, error)
}

func (r *rig) genericPython(ctx context.Context) ([]Metric, error) {
	return r.restores(ctx, restoring{
		shell: api.ShellGeneric, image: imagePython, source: pythonCell, want: pythonOut, ack: restoreAck, out: restorePython, floor: (*floor.Floor).Restore,
	})
}

func (r *rig) genericNode(ctx context.Context) ([]Metric, error) {
	return r.restores(ctx, restoring{shell: api.ShellGeneric, image: imageNode, source: nodeCell, want: nodeOut, out: restoreNode, floor: (*floor.Floor).Restore})
}

func (r *rig) rehearsedPython(ctx context.Context) ([]Metric, error) {
	return r.restores(ctx, restoring{
		shell: api.ShellRehearsed, image: imagePython, source: pythonCell, want: pythonOut, ack: restoreReAck, out: restoreRePython, floor: (*floor.Floor).Enter,
	})
}

func (r *rig) rehearsedPandas(ctx context.Context) ([]Metric, error) {
	return r.restores(ctx, restoring{
		shell: api.ShellRehearsed, image: imagePython, source: pandasCell, want: pandasOut, out: restoreRePandas, floor: (*floor.Floor).Enter,
	})
}

func (r *rig) rehearsedNode(ctx context.Context) ([]Metric, error) {
	return r.restores(ctx, restoring{
		shell: api.ShellRehearsed, image: imageNode, source: nodeCell, want: nodeOut, out: restoreReNode, floor: (*floor.Floor).Enter,
	})
}

// boundPython measures at a daemon of its own, which keeps a bound shell too: the others'
// figures stay those of a daemon that keeps none, as it is by default.
func (r *rig) boundPython(ctx context.Context) (_ []Metric, err error) {
	lower, err := r.floorOf(ctx)
	if err != nil {
		return nil, err
	}
	own := &rig{cfg: r.cfg, n: r.n, kernel: r.kernel, raw: r.raw, floor: lower, templates: map[string]bool{}}
	if own.dir, err = os.MkdirTemp(r.dir, "bound-"); err != nil {
		return nil, fmt.Errorf("checkpoint: make temporary folder: %w", err)
	}
	if err := own.start(ctx, shells{bound: 1, rehearsed: 1}); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.daemon.Stop()) }()
	return own.restores(ctx, restoring{
		shell: api.ShellBound, image: imagePython, source: pythonCell, want: pythonOut, ack: restoreBoundAck, out: restoreBoundPy, floor: (*floor.Floor).Enter,
	})
}

// restored is one restore. Times are in milliseconds.
type restored struct {
	Ack    float64    `json:"ack_ms"`
	Out    float64    `json:"out_ms"`
	Record api.Record `json:"record"`
}

// restores measures restores of one kind until there are enough of the shell that was
// asked for.
func (r *rig) restores(ctx context.Context, k restoring) ([]Metric, error) {
	lower, err := r.floorOf(ctx)
	if err != nil {
		return nil, err
	}
	r.say("%d restores of the %s image, %s shells", r.n, k.image, k.shell)
	var acks, outs []float64
	var parts phases
	others, calm := 0, 2 // the first ones do not count
	for len(outs) < r.n {
		one, err := r.restore(ctx, k)
		if err != nil {
			return nil, err
		}
		if calm > 0 {
			calm--
			continue
		}
		if err := r.raw.Add(k.out, one); err != nil {
			return nil, err
		}
		if one.Record.Shell != k.shell {
			if others++; others > r.n+10 {
				return nil, fmt.Errorf("checkpoint: %d restores got another shell than a %s one, the last a %s one", others, k.shell, one.Record.Shell)
			}
			continue
		}
		acks, outs = append(acks, one.Ack), append(outs, one.Out)
		parts.add(one.Record.Phases)
		parts.one("rest until acknowledged", one.Ack-one.Record.TotalMS)
		parts.one("cell", one.Out-one.Ack)
	}
	least, err := k.floor(lower, min(r.n, floorSamples))
	if err != nil {
		return nil, err
	}
	detail := parts.text()
	if others > 0 {
		detail += fmt.Sprintf("; %d more got another shell and do not count", others)
	}
	var list []Metric
	for _, m := range []struct {
		name    string
		samples []float64
	}{{k.ack, acks}, {k.out, outs}} {
		if m.name == "" {
			continue
		}
		metric := distribution(m.name, unitMilliseconds, m.samples).withFloor(milliseconds(least))
		if metric.Detail = detail; list == nil {
			metric.Phases = parts.medians()
		}
		list = append(list, metric)
	}
	return list, nil
}

// floorSamples is how many samples of a floor are taken at most.
const floorSamples = 30

// restore makes one machine, runs a cell in it and destroys it.
func (r *rig) restore(ctx context.Context, k restoring) (one restored, err error) {
	req := api.SandboxRequest{Image: k.image, Shell: k.shell}
	if err := r.template(ctx, req); err != nil {
		return one, err
	}
	if err := r.idle(ctx); err != nil {
		return one, err
	}
	begin := time.Now()
	s, err := r.client.CreateSandbox(ctx, req)
	if err != nil {
		return one, err
	}
	one.Ack = ms(time.Since(begin))
	at, err := r.first(ctx, s, "", k.source, k.want)
	one.Out, one.Record = ms(at.Sub(begin)), s.Record
	return one, errors.Join(err, r.remove(ctx, s))
}
