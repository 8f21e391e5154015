package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"thaw/bench/report"
)

// Output takes results as they come.
type Output struct {
	Host    func(string)
	Metric  func(Metric)
	Failure func(report.Failure)
}

// part is a measurement that gives several metrics.
type part struct {
	metrics []string
	measure func(context.Context) ([]Metric, error)
}

// Run measures everything and reports whether all could be measured. What it
// makes on the host is gone when it returns, also when ctx is cancelled.
func Run(ctx context.Context, cfg Config, out Output) (complete bool, err error) {
	e, err := newEnv(ctx, cfg)
	if err != nil {
		return false, err
	}
	defer e.close()
	out.Host(e.host)
	complete = true
	emit := func(m Metric) {
		m.Host = e.host
		out.Metric(m)
	}
	fail := func(name string, err error) {
		complete = false
		f := failure(name, err)
		f.Host = e.host
		out.Failure(f)
	}
	parts := []part{
		{[]string{coldStart}, e.coldStarts},
		{[]string{execTrue, vmmRSS}, e.machines},
		{[]string{coldInit, coldInitVS}, e.coldInits},
	}
	if !cfg.Quick {
		parts = append(parts, part{[]string{stdoutRate}, e.streamStdout})
	}
	if err := e.known(parts); err != nil {
		return false, err
	}
	for _, p := range parts {
		if !e.wantsAny(p.metrics) {
			continue
		}
		metrics, err := p.measure(ctx)
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		for _, m := range metrics {
			emit(m)
		}
		for _, name := range p.metrics {
			measured := slices.ContainsFunc(metrics, func(m Metric) bool { return m.Name == name })
			if err != nil && !measured {
				fail(name, err)
			}
		}
	}
	if err := e.loads(ctx, emit, fail); err != nil {
		return false, err
	}
	return complete, nil
}

// known refuses metrics that are asked for and that this run does not have.
func (e *env) known(parts []part) error {
	var names []string
	for _, p := range parts {
		names = append(names, p.metrics...)
	}
	for _, group := range e.comparisons() {
		for _, c := range group {
			names = append(names, c.metric)
		}
	}
	for _, n := range e.cfg.Only {
		if !slices.Contains(names, n) {
			return fmt.Errorf("suite: there is no metric %q in this run (there are %s)", n, strings.Join(names, ", "))
		}
	}
	return nil
}

// wantsAny reports whether one of the metrics is asked for.
func (e *env) wantsAny(names []string) bool {
	return len(e.cfg.Only) == 0 || slices.ContainsFunc(names, func(n string) bool { return slices.Contains(e.cfg.Only, n) })
}

func (e *env) wants(group []comparison) bool {
	return slices.ContainsFunc(group, func(c comparison) bool { return e.wantsAny([]string{c.metric}) })
}
