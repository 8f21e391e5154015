package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"thaw/bench/report"
)

// Config says what to measure and with what.
type Config struct {
	Bin      string // folder of thawd, thaw-vmm and thaw-init
	Quick    bool   // within five minutes
	N        int    // samples of each metric; 0: 200, or 30 if quick
	RawDir   string // where samples are stored, or ""
	Kernel   string // path of another kernel than the tuned one, or ""
	Only     []string
	Progress io.Writer
}

// Output takes results as they come.
type Output struct {
	Host    func(string)
	Warning func(string)
	Metric  func(Metric)
	Failure func(report.Failure)
}

// part is a measurement that gives several metrics.
type part struct {
	metrics []string
	measure func(context.Context) ([]Metric, error)
}

func (r *rig) parts() []part {
	return []part{
		{[]string{restoreAck, restorePython}, r.genericPython},
		{[]string{restoreNode}, r.genericNode},
		{[]string{restoreReAck, restoreRePython}, r.rehearsedPython},
		{[]string{restoreRePandas}, r.rehearsedPandas},
		{[]string{restoreReNode}, r.rehearsedNode},
		{[]string{restoreBoundAck, restoreBoundPy}, r.boundPython},
		{[]string{pause8}, r.pause8MB},
		{[]string{pause256}, r.pause256MB},
		{[]string{rollbackRuns, rollbackAck, rollbackPython}, r.rollbacks},
		{[]string{fork100, fork100Python, pssPerFork}, r.forks},
		{[]string{jobsPerSecond}, r.jobs},
		{[]string{touch128}, r.touch},
		{[]string{pandasVsHost}, r.pandas},
		{[]string{chainDepth}, r.chain},
		{[]string{deltaTrivial}, r.trivialDelta},
	}
}

// Run measures everything and reports whether all could be measured. What it makes on
// the host is gone when it returns, also when ctx is cancelled.
func Run(ctx context.Context, cfg Config, out Output) (complete bool, err error) {
	if err := (&rig{cfg: cfg}).known(); err != nil {
		return false, err
	}
	r, host, err := open(ctx, cfg, "checkpoint", out.Warning)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	out.Host(host)
	complete = true
	for _, p := range r.parts() {
		if !r.wants(p.metrics) {
			continue
		}
		metrics, err := p.measure(ctx)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		for _, m := range metrics {
			m.Host = host
			out.Metric(m)
		}
		for _, name := range p.metrics {
			measured := slices.ContainsFunc(metrics, func(m Metric) bool { return m.Name == name })
			if !measured {
				complete = false
				out.Failure(failure(name, host, err))
			}
		}
	}
	return complete, nil
}

// known refuses metrics that do not exist.
func (r *rig) known() error {
	var names []string
	for _, p := range r.parts() {
		names = append(names, p.metrics...)
	}
	for _, n := range r.cfg.Only {
		if !slices.Contains(names, n) {
			return fmt.Errorf("checkpoint: there is no metric %q (there are %s)", n, strings.Join(names, ", "))
		}
	}
	return nil
}

// wants reports whether one of the metrics is asked for.
func (r *rig) wants(names []string) bool {
	return len(r.cfg.Only) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(r.cfg.Only, n) })
}

// failure explains an error in the place of a metric.
func failure(name, host string, err error) report.Failure {
	if err == nil {
		err = errors.New("checkpoint: not measured")
	}
	return report.Failure{Name: name, Host: host, Error: err.Error(), Remedy: "look at the message; `thaw doctor` checks this host"}
}

// pick returns the value for a quick run or for a full one.
func pick[T any](quick bool, short, full T) T {
	if quick {
		return short
	}
	return full
}

// leastSamples is how many samples a quick run takes of what takes long, whatever the time.
const leastSamples = 10

// late says that a quick run, which is to end within five minutes, must leave it at the
// samples that it has.
func (r *rig) late(begin time.Time, have int, most time.Duration) bool {
	return r.cfg.Quick && have >= leastSamples && time.Since(begin) > most
}

// threads is how many threads a floor uses.
func threads() int { return runtime.NumCPU() }
