package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"thaw/api"
	"thaw/bench/stats"
)

// forkCount is how many machines are forked at a time.
const forkCount = 100

// forkTime is what forks may take of a quick run.
const forkTime = 75 * time.Second

// removers is how many sandboxes are removed at a time.
const removers = 8

// forked is one fork of a hundred. Times are in milliseconds.
type forked struct {
	Ack     float64         `json:"ack_ms"`
	Out     float64         `json:"out_ms"`
	Daemon  float64         `json:"daemon_ms"`
	Shells  map[string]int  `json:"shells"`
	Records []api.Record    `json:"records"`
	PSS     map[int]float64 `json:"pss_mib,omitempty"`
	Host    float64         `json:"host_mib,omitempty"` // by which the host's available memory fell, a fork
}

// forks measures forks of one checkpoint, and the memory of those of the first rounds.
func (r *rig) forks(ctx context.Context) ([]Metric, error) {
	lower, err := r.floorOf(ctx)
	if err != nil {
		return nil, err
	}
	r.say("%d times %d forks", r.n, forkCount)
	var acks, outs, pss, host []float64
	var parts phases
	shells := map[string]int{}
	// Each machine's memory is a sample.
	memoryRounds := (r.n + forkCount - 1) / forkCount
	err = r.with(ctx, api.SandboxRequest{Image: imagePython}, func(s api.Sandbox) error {
		if _, err := r.cell(ctx, s, pythonCell); err != nil {
			return err
		}
		c, err := r.client.Checkpoint(ctx, s.ID, api.CheckpointRequest{Durable: true})
		if err != nil {
			return err
		}
		begin := time.Now()
		for i := range r.n + 1 { // the first does not count
			if r.late(begin, len(acks), forkTime) {
				break
			}
			one, err := r.fork(ctx, s, c.Snapshot.ID, i > 0 && i <= memoryRounds)
			if err != nil {
				return err
			}
			if i == 0 {
				continue
			}
			if err := r.raw.Add(fork100, one); err != nil {
				return err
			}
			acks, outs = append(acks, one.Ack), append(outs, one.Out)
			for kind, n := range one.Shells {
				shells[kind] += n
			}
			for _, rec := range one.Records {
				parts.add(rec.Phases)
			}
			if one.PSS != nil {
				host = append(host, one.Host)
			}
			for _, mib := range one.PSS {
				pss = append(pss, mib)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	least, err := lower.Fork(min(r.n, 5), forkCount, genericShells+rehearsedShells, threads())
	if err != nil {
		return nil, err
	}
	var kinds []string
	for kind, n := range shells {
		kinds = append(kinds, fmt.Sprintf("%.1f %s", float64(n)/float64(len(acks)), kind))
	}
	slices.Sort(kinds)
	ack := distribution(fork100, unitMilliseconds, acks).withFloor(milliseconds(least))
	ack.Detail, ack.Phases = fmt.Sprintf("shells %v; one of them: %s", kinds, parts.text()), parts.medians()
	out := distribution(fork100Python, unitMilliseconds, outs).withFloor(milliseconds(least))
	memory := distribution(pssPerFork, unitMiB, pss)
	memory.Detail = fmt.Sprintf("the host's available memory fell by %.2f MiB a fork", stats.Median(host))
	return []Metric{ack, out, memory}, nil
}

// fork makes a hundred forks, has each print something and destroys them.
func (r *rig) fork(ctx context.Context, s api.Sandbox, snapshot string, memory bool) (one forked, err error) {
	if err := r.idle(ctx); err != nil {
		return one, err
	}
	before, err := availableMiB()
	if err != nil {
		return one, err
	}
	begin := time.Now()
	a, err := r.client.Fork(ctx, s.ID, api.ForkRequest{Count: forkCount, Snapshot: snapshot})
	if err != nil {
		return one, err
	}
	one.Ack, one.Daemon = ms(time.Since(begin)), a.TotalMS
	var all map[int]float64
	defer func() {
		if err = errors.Join(err, r.removeAll(ctx, a.Sandboxes)); err == nil && all != nil {
			one.PSS, err = r.ended(ctx, all)
		}
	}()
	one.Shells = map[string]int{}
	for _, f := range a.Sandboxes {
		one.Shells[string(f.Record.Shell)]++
		one.Records = append(one.Records, f.Record)
	}
	last, err := r.allPrint(ctx, a.Sandboxes)
	if err != nil {
		return one, err
	}
	one.Out = ms(last.Sub(begin))
	if !memory {
		return one, nil
	}
	if err := r.idle(ctx); err != nil { // the pool fills up again
		return one, err
	}
	after, err := availableMiB()
	if err != nil {
		return one, err
	}
	one.Host = (before - after) / forkCount
	all, err = machineMemory(r.daemon.PID())
	return one, err
}

// allPrint runs a cell in all sandboxes at the same time, and returns when the last of
// them printed.
func (r *rig) allPrint(ctx context.Context, list []api.Sandbox) (last time.Time, err error) {
	at, errs := make([]time.Time, len(list)), make([]error, len(list))
	var wg sync.WaitGroup
	for i, s := range list {
		wg.Go(func() { at[i], errs[i] = r.first(ctx, s, "", pythonCell, pythonOut) })
	}
	wg.Wait()
	return slices.MaxFunc(at, time.Time.Compare), errors.Join(errs...)
}

// removeAll removes sandboxes, several at a time.
func (r *rig) removeAll(ctx context.Context, list []api.Sandbox) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	turn := make(chan struct{}, removers)
	for i, s := range list {
		wg.Go(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			errs[i] = r.remove(ctx, s)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// machineMemory returns the proportional memory, in MiB, of all thaw-vmm of a daemon.
func machineMemory(daemon int) (map[int]float64, error) {
	pids, err := vmms("/proc", daemon)
	if err != nil {
		return nil, err
	}
	all := map[int]float64{}
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("checkpoint: memory of process %d: %w", pid, err)
		}
		if all[pid], err = parsePSS(string(b)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ended takes what all thaw-vmm had when the forks lived, and returns what those had that
// are gone when the forks are removed: they, and no other. The sandbox that was forked and a
// rehearsed shell have several times as much, shells that wait have less.
func (r *rig) ended(ctx context.Context, all map[int]float64) (map[int]float64, error) {
	for deadline := time.Now().Add(idleTime); ; {
		pids, err := vmms("/proc", r.daemon.PID())
		if err != nil {
			return nil, err
		}
		gone := maps.Clone(all)
		for _, pid := range pids {
			delete(gone, pid)
		}
		switch {
		case len(gone) == forkCount:
			return gone, nil
		case len(gone) > forkCount || time.Now().After(deadline):
			return nil, fmt.Errorf("checkpoint: %d of %d thaw-vmm ended with %d forks", len(gone), len(all), forkCount)
		}
		select {
		case <-time.After(idlePause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
