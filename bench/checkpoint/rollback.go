package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"thaw/api"
	"thaw/bench/stats"
)

// A small step: 256 KiB of memory and a file of 64 KiB are written, and some pages of the
// interpreter's and the kernel's own.
const (
	stepBefore = `import os
step = bytearray(256 << 10)
print(len(step))`
	stepCell = `step[:] = os.urandom(len(step))
with open("/workspace/step", "wb") as f:
    f.write(step[:64 << 10])
print(len(step))`
)

// rolledBack is one rollback. Times are in milliseconds.
type rolledBack struct {
	Runs   float64    `json:"runs_ms"`
	Ack    float64    `json:"ack_ms"`
	Out    float64    `json:"out_ms"`
	Record api.Record `json:"record"`
}

// rollbacks measures rollbacks in place after small steps.
func (r *rig) rollbacks(ctx context.Context) (list []Metric, err error) {
	lower, err := r.floorOf(ctx)
	if err != nil {
		return nil, err
	}
	r.say("%d rollbacks in place", r.n)
	var runs, acks, outs, private, copied []float64
	var parts phases
	err = r.with(ctx, api.SandboxRequest{Image: imagePython}, func(s api.Sandbox) error {
		if _, err := r.cell(ctx, s, stepBefore); err != nil {
			return err
		}
		c, err := r.client.Checkpoint(ctx, s.ID, api.CheckpointRequest{Durable: true})
		if err != nil {
			return err
		}
		for i := range r.n + 2 { // the first two do not count
			one, err := r.rollback(ctx, s, c.Snapshot.ID)
			if err != nil {
				return err
			}
			if i < 2 {
				continue
			}
			if err := r.raw.Add(rollbackAck, one); err != nil {
				return err
			}
			runs, acks, outs = append(runs, one.Runs), append(acks, one.Ack), append(outs, one.Out)
			private, copied = append(private, float64(one.Record.PrivatePages)), append(copied, float64(one.Record.CopiedPages))
			parts.add(one.Record.Phases)
			parts.one("rest until acknowledged", one.Ack-one.Record.TotalMS)
			parts.one("cell", one.Out-one.Ack)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	pages, changed := int(stats.Median(private)), int(stats.Median(copied))
	least, err := lower.Rollback(min(r.n, floorSamples), pages, changed)
	if err != nil {
		return nil, err
	}
	for _, m := range []struct {
		name    string
		samples []float64
	}{{rollbackRuns, runs}, {rollbackAck, acks}, {rollbackPython, outs}} {
		metric := distribution(m.name, unitMilliseconds, m.samples).withFloor(milliseconds(least))
		metric.Detail = fmt.Sprintf("%d pages private, %d put back; %s", pages, changed, parts.text())
		if list == nil {
			metric.Phases = parts.medians()
		}
		list = append(list, metric)
	}
	return list, nil
}

// rollback takes a step and undoes it.
func (r *rig) rollback(ctx context.Context, s api.Sandbox, to string) (one rolledBack, err error) {
	if _, err := r.cell(ctx, s, stepCell); err != nil {
		return one, err
	}
	if err := r.idle(ctx); err != nil {
		return one, err
	}
	begin := time.Now()
	s, err = r.client.Rollback(ctx, s.ID, to)
	if err != nil {
		return one, err
	}
	one.Ack = ms(time.Since(begin))
	at, err := r.first(ctx, s, "", pythonCell, pythonOut)
	one.Out, one.Record = ms(at.Sub(begin)), s.Record
	var rerr error
	one.Runs, rerr = untilRuns(s.Record)
	return one, errors.Join(err, rerr)
}
