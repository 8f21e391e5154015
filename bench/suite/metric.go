// Package suite measures: it makes what the measurements need, takes the
// samples and sums them up. What each metric means is in DEFINITIONS.md.
package suite

import (
	"errors"
	"fmt"

	"thaw/bench/machine"
	"thaw/bench/netlab"
	"thaw/bench/report"
	"thaw/bench/stats"
)

// Metric is one line of the result. A metric that could not be measured has
// Error and Remedy and no figures.
type Metric struct {
	Name   string  `json:"metric"`
	Unit   string  `json:"unit"`
	P50    float64 `json:"p50"`
	P95    float64 `json:"p95"`
	P99    float64 `json:"p99"`
	N      int     `json:"n"`
	Host   string  `json:"host"`
	Phases []Phase `json:"phases,omitempty"`

	Detail string `json:"-"` // absolute figures of both sides, for people
}

// Phase is a part of a cold start: the median over all starts, in milliseconds.
type Phase struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Names of the metrics, in the order in which they are reported.
const (
	coldStart   = "cold_start_ms"
	coldInit    = "cold_init_ms"
	coldInitVS  = "cold_init_vs_qemu"
	execTrue    = "exec_true_ms"
	vmmRSS      = "vmm_rss_mib"
	stdoutRate  = "stdout_1gib_mb_s"
	ratioUnit   = "x"
	millisecond = "ms"
)

// distribution sums up samples for which less is better.
func distribution(name, unit string, samples []float64) Metric {
	return Metric{
		Name: name, Unit: unit, N: len(samples),
		P50: stats.Median(samples), P95: stats.Percentile(samples, 0.95), P99: stats.Percentile(samples, 0.99),
	}
}

// ratio compares samples taken in pairs: the ratio of the medians, and the
// percentiles of the pairs' ratios.
func ratio(name string, over, under []float64) Metric {
	pairs := stats.Pairwise(over, under)
	return Metric{
		Name: name, Unit: ratioUnit, N: len(pairs),
		P50: stats.Median(over) / stats.Median(under), P95: stats.Percentile(pairs, 0.95), P99: stats.Percentile(pairs, 0.99),
	}
}

// failure explains an error in the place of a metric.
func failure(name string, err error) report.Failure {
	f := report.Failure{Name: name, Error: err.Error(), Remedy: "look at the message; `thaw doctor` checks this host"}
	switch {
	case errors.Is(err, machine.ErrNoQEMU):
		f.Remedy = "install qemu-system-x86, or run `make deps`"
	case errors.Is(err, netlab.ErrNoIperf):
		f.Remedy = "install iperf3, or run `make deps`"
	}
	return f
}

// Text is the metric as a row for people.
func (m Metric) Text() string {
	return fmt.Sprintf("%-24s %9.2f %9.2f %9.2f %-6s %4d  %s", m.Name, m.P50, m.P95, m.P99, m.Unit, m.N, m.Detail)
}
