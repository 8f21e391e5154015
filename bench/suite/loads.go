package suite

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"thaw/bench/load"
	"thaw/bench/machine"
	"thaw/bench/netlab"
	"thaw/bench/stats"
)

// dataSize is the size of the disk that fio works on, in bytes.
const dataSize = 1 << 30

// comparison is a metric that both sides are loaded for.
type comparison struct {
	metric string
	job    load.Job
}

// comparisons returns the metrics in groups; a machine is booted for each group
// and side, so that the two sides' turns are seconds apart.
func (e *env) comparisons() [][]comparison {
	d := pick(e.cfg.Quick, time.Second, 3*time.Second)
	ramp := pick(e.cfg.Quick, 100*time.Millisecond, 500*time.Millisecond)
	block := func(metric, mode string, size, depth int) comparison {
		return comparison{metric, load.Job{Kind: load.Fio, Mode: mode, Block: size, Depth: depth, Ramp: ramp, Time: d}}
	}
	wire := func(metric, mode string) comparison {
		return comparison{metric, load.Job{Kind: load.Iperf, Mode: mode, Time: d}}
	}
	const small, big = 4 << 10, 1 << 20
	return [][]comparison{
		{block("blk_4k_read_vs_qemu", "randread", small, 1), block("blk_4k_write_vs_qemu", "randwrite", small, 1)},
		{block("blk_4k_read_qd32_vs_qemu", "randread", small, 32), block("blk_4k_write_qd32_vs_qemu", "randwrite", small, 32)},
		{block("blk_seq_read_vs_qemu", "read", big, 8), block("blk_seq_write_vs_qemu", "write", big, 8)},
		{wire("net_rx_vs_qemu", "rx"), wire("net_tx_vs_qemu", "tx")},
	}
}

// loads measures block and network on both sides.
func (e *env) loads(ctx context.Context, emit func(Metric), fail func(string, error)) error {
	groups := slices.DeleteFunc(e.comparisons(), func(g []comparison) bool { return !e.wants(g) })
	if len(groups) == 0 {
		return nil
	}
	failAll := func(err error) {
		for _, g := range groups {
			for _, c := range g {
				fail(c.metric, err)
			}
		}
	}
	qemu, err := e.qemu(ctx)
	if err != nil {
		failAll(err)
		return nil
	}
	boot, err := e.loadBoot(ctx)
	if err != nil {
		failAll(err)
		return nil
	}
	rounds := pick(e.cfg.Quick, 3, 7)
	for _, group := range groups {
		samples := map[string][][]load.Result{}
		for i := range rounds {
			for j := range 2 {
				// In turn: ABBA.
				side := []machine.Side{e.thaw, qemu}[(i+j)%2]
				if err == nil {
					var r []load.Result
					if r, err = e.loadOnce(ctx, side, boot, group); err == nil {
						samples[side.Name()] = append(samples[side.Name()], r)
					}
				}
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		for i, c := range group {
			if err != nil {
				fail(c.metric, err)
				continue
			}
			emit(compare(c, column(samples["thaw"], i), column(samples["qemu"], i)))
		}
		err = nil
	}
	return nil
}

// loadBoot is the machine that is loaded.
func (e *env) loadBoot(ctx context.Context) (machine.Boot, error) {
	image, err := e.image(ctx, "bench")
	if err != nil {
		return machine.Boot{}, err
	}
	initrd, err := e.initramfs(ctx, filepath.Join(e.cfg.Bin, "bench-guest"))
	if err != nil {
		return machine.Boot{}, err
	}
	data, err := e.dataDisk(dataSize)
	if err != nil {
		return machine.Boot{}, err
	}
	return machine.Boot{
		Kernel: e.kernel, Initrd: initrd, VCPUs: 1, MemoryMiB: 512,
		Disks: []machine.Disk{{Path: image, ReadOnly: true}, {Path: data}},
	}, nil
}

// loadOnce boots one side and runs a group's jobs there.
func (e *env) loadOnce(ctx context.Context, side machine.Side, boot machine.Boot, group []comparison) ([]load.Result, error) {
	jobs := make([]load.Job, len(group))
	limit := 30 * time.Second
	for i, c := range group {
		jobs[i] = c.job
		limit += 2 * (c.job.Time + c.job.Ramp)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	boot.Arguments = load.Argument(jobs)
	if jobs[0].Kind == load.Iperf {
		lab, err := netlab.New(ctx)
		if err != nil {
			return nil, err
		}
		defer lab.Close()
		boot.Tap = lab.Tap
	}
	e.say("%s: %s", side.Name(), boot.Arguments)
	console, err := side.UntilEnd(ctx, boot)
	if err != nil {
		return nil, err
	}
	results, err := load.Parse(console, jobs)
	if err != nil {
		return nil, fmt.Errorf("suite: %s: %w", side.Name(), err)
	}
	for i, r := range results {
		if err := e.sample(group[i].metric, map[string]any{"side": side.Name(), "result": r}); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// column is one job's results over all rounds.
func column(rounds [][]load.Result, job int) []load.Result {
	list := make([]load.Result, len(rounds))
	for i, r := range rounds {
		list[i] = r[job]
	}
	return list
}

// compare sums up one job on both sides.
func compare(c comparison, thaw, qemu []load.Result) Metric {
	value := func(list []load.Result) []float64 {
		v := make([]float64, len(list))
		for i, r := range list {
			v[i] = r.Rate
			if c.job.Block >= 1<<20 {
				v[i] = r.Bytes
			}
		}
		return v
	}
	a, b := value(thaw), value(qemu)
	m := ratio(c.metric, a, b)
	scale, unit := 1e3, "k/s"
	switch {
	case c.job.Kind == load.Iperf:
		scale, unit = 1e9, "Gbit/s"
	case c.job.Block >= 1<<20:
		scale, unit = 1e9, "GB/s"
	}
	m.Detail = fmt.Sprintf("thaw %.2f %s, qemu %.2f %s", stats.Median(a)/scale, unit, stats.Median(b)/scale, unit)
	return m
}
