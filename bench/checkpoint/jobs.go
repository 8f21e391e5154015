package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"thaw/api"
	"thaw/bench/stats"
	"thaw/client"
)

const (
	// jobCallers submit jobs at the same time, each the next when one has ended.
	jobCallers = 4
	// jobWindow is how many jobs a rate is taken of.
	jobWindow = 10
	// jobMemoryMiB is the largest limit with which a job's machine has 512 MiB.
	jobMemoryMiB = 370
	// jobTime is what jobs may take of a quick run.
	jobTime = 20 * time.Second
)

// jobs measures how many warm one-shot jobs a second the daemon runs.
func (r *rig) jobs(ctx context.Context) ([]Metric, error) {
	lower, err := r.floorOf(ctx)
	if err != nil {
		return nil, err
	}
	in, err := r.client.AddInput(ctx, strings.NewReader(pythonCell+"\n"))
	if err != nil {
		return nil, err
	}
	if err := r.idle(ctx); err != nil {
		return nil, err
	}
	n := r.n * jobWindow
	r.say("%d jobs, %d at a time", n, jobCallers)
	var mu sync.Mutex
	var ends []time.Time // protected by mu
	var took []float64   // protected by mu
	shells := map[string]int{}
	next := make(chan struct{})
	errs := make([]error, jobCallers)
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range jobCallers {
		wg.Go(func() {
			for range next {
				if errs[i] != nil {
					continue
				}
				start := time.Now()
				shell, err := r.job(ctx, in.Input)
				errs[i] = err
				mu.Lock()
				ends, took = append(ends, time.Now()), append(took, ms(time.Since(start)))
				shells[shell]++
				mu.Unlock()
			}
		})
	}
	for i := range n {
		if r.late(begin, i/jobWindow, jobTime) {
			break
		}
		next <- struct{}{}
	}
	close(next)
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	n = len(ends)
	floorRate, err := lower.Jobs(min(n, 100), threads())
	if err != nil {
		return nil, err
	}
	m := rates(jobsPerSecond, unitPerSecond, windows(begin, ends, jobWindow)).withFloor([]float64{floorRate})
	m.Detail = fmt.Sprintf("%d jobs in %.1f s: %.1f a second; one took %.1f ms (median); shells %v", n, ends[n-1].Sub(begin).Seconds(),
		float64(n)/ends[n-1].Sub(begin).Seconds(), stats.Median(took), shells)
	return []Metric{m}, r.raw.Add(jobsPerSecond, map[string]any{"took_ms": took, "shells": shells, "seconds": ends[n-1].Sub(begin).Seconds()})
}

// windows returns the rate of each size ends that follow each other.
func windows(begin time.Time, ends []time.Time, size int) []float64 {
	var list []float64
	for i := size - 1; i < len(ends); i += size {
		list = append(list, float64(size)/ends[i].Sub(begin).Seconds())
		begin = ends[i]
	}
	return list
}

// job runs one job and returns what kind of shell served it.
func (r *rig) job(ctx context.Context, input string) (shell string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	j, err := r.client.Submit(ctx, api.JobRequest{
		Runtime: imagePython, Script: "main.py", Inputs: []api.InputRef{{Name: "main.py", Input: input}}, Limits: api.Limits{MemoryMiB: jobMemoryMiB},
	})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	if j, err = r.client.Follow(ctx, j.ID, client.Watcher{Stdout: func(b []byte) error { out.Write(b); return nil }}); err != nil {
		return "", err
	}
	switch {
	case j.Result == nil || j.Result.Error != nil:
		return "", fmt.Errorf("checkpoint: job is %s: %+v", j.State, j.Result)
	case strings.TrimSpace(out.String()) != pythonOut:
		return "", fmt.Errorf("checkpoint: job printed %q", out.String())
	case j.Result.Start == nil || !j.Result.Start.Warm:
		return "", fmt.Errorf("checkpoint: job did not run in a warm interpreter: %+v", j.Result.Start)
	}
	return string(j.Result.Start.Shell), nil
}
