package checkpoint

import (
	"context"
	"fmt"
	"time"

	"thaw/api"
	"thaw/bench/floor"
	"thaw/bench/stats"
)

// touchBytes is how much new memory a program touches.
const touchBytes = 128 * mib

// touchCell touches one byte of each page of new memory, which numpy asks the guest's
// kernel for in huge pages.
const touchCell = `import time
import numpy as np
begin = time.perf_counter()
new = np.empty(%d, dtype=np.uint8)
new[::4096] = 1
print((time.perf_counter() - begin) * 1000)`

// touch measures new memory in restored machines.
func (r *rig) touch(ctx context.Context) ([]Metric, error) {
	r.say("%d restored machines that touch %d MiB", r.n, touchBytes/mib)
	var took []float64
	shells := map[api.Shell]int{}
	for len(took) < r.n {
		req := api.SandboxRequest{Image: imagePython}
		if err := r.template(ctx, req); err != nil {
			return nil, err
		}
		if err := r.idle(ctx); err != nil {
			return nil, err
		}
		err := r.with(ctx, req, func(s api.Sandbox) error {
			v, err := r.number(ctx, s, fmt.Sprintf(touchCell, touchBytes))
			if err != nil {
				return err
			}
			took = append(took, v)
			shells[s.Record.Shell]++
			return r.raw.Add(touch128, map[string]any{"ms": v, "shell": s.Record.Shell})
		})
		if err != nil {
			return nil, err
		}
	}
	least, err := floor.Touch(min(r.n, floorSamples), touchBytes)
	if err != nil {
		return nil, err
	}
	m := distribution(touch128, unitMilliseconds, took).withFloor(milliseconds(least))
	m.Detail = fmt.Sprintf("shells %v", shells)
	return []Metric{m}, nil
}

// pandasMemoryMiB is the size of the machines that run millionRows.
const pandasMemoryMiB = 1024

// pandasTime is what millionRows may take of a quick run, on both sides together.
const pandasTime = 50 * time.Second

// millionRows groups a million rows and joins them with the sums, and prints what that
// took in milliseconds.
const millionRows = `import time
import numpy as np
import pandas as pd
def work():
    rng = np.random.default_rng(1)
    df = pd.DataFrame({"key": rng.integers(0, 1000, 1_000_000), "value": rng.random(1_000_000)})
    sums = df.groupby("key")["value"].sum().reset_index()
    return df.merge(sums, on="key", suffixes=("", "_sum"))["value_sum"].sum()
begin = time.perf_counter()
work()
print((time.perf_counter() - begin) * 1000)`

// warmUp is what an interpreter has done before on the host: that of the template has
// done as much.
const warmUp = `import numpy as np
import pandas as pd
pd.DataFrame({"a": [1, 2, 3]}).groupby("a").size()
`

// pandas measures a large pandas job in restored machines and on the host itself, in turn.
func (r *rig) pandas(ctx context.Context) ([]Metric, error) {
	tree, err := mountImage(ctx, imagePython)
	if err != nil {
		return nil, err
	}
	defer tree.close()
	r.say("%d times a million rows in a machine and on the host", r.n)
	guest := func() (v float64, err error) {
		req := api.SandboxRequest{Image: imagePython, MemoryMiB: pandasMemoryMiB}
		if err := r.template(ctx, req); err != nil {
			return 0, err
		}
		if err := r.idle(ctx); err != nil {
			return 0, err
		}
		err = r.with(ctx, req, func(s api.Sandbox) error {
			v, err = r.number(ctx, s, millionRows)
			return err
		})
		return v, err
	}
	host := func() (float64, error) {
		if err := r.idle(ctx); err != nil {
			return 0, err
		}
		out, err := tree.python(ctx, warmUp+millionRows)
		if err != nil {
			return 0, err
		}
		return parseNumber(out)
	}
	var ours, theirs []float64
	begin := time.Now()
	for i := range r.n {
		if r.late(begin, i, pandasTime) {
			break
		}
		sides := []func() error{
			func() error { v, err := guest(); ours = append(ours, v); return err },
			func() error { v, err := host(); theirs = append(theirs, v); return err },
		}
		for j := range sides {
			if err := sides[(i+j)%2](); err != nil {
				return nil, err
			}
		}
		if err := r.raw.Add(pandasVsHost, map[string]float64{"guest_ms": ours[i], "host_ms": theirs[i]}); err != nil {
			return nil, err
		}
	}
	m := ratio(pandasVsHost, ours, theirs)
	m.Detail = fmt.Sprintf("machine %.1f ms, host %.1f ms", stats.Median(ours), stats.Median(theirs))
	return []Metric{m}, nil
}
