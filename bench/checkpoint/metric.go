// Package checkpoint measures restores, checkpoints, rollbacks and forks through the
// interface of a daemon of its own. What each metric means is in DEFINITIONS.md.
package checkpoint

import (
	"fmt"
	"math"

	"thaw/bench/stats"
)

// Metric is one line of the result.
type Metric struct {
	Name     string   `json:"metric"`
	Unit     string   `json:"unit"`
	P50      float64  `json:"p50"`
	P95      float64  `json:"p95"`
	P99      float64  `json:"p99"`
	N        int      `json:"n"`
	FloorP50 *float64 `json:"floor_p50"` // null where there is none
	Host     string   `json:"host"`

	Detail string  `json:"-"` // for people
	Phases []Phase `json:"-"`
}

// Phase is a part of an operation: the median over all of them, in milliseconds. A name
// with a slash is a part of the phase before the slash.
type Phase struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Names of the metrics.
const (
	restoreAck       = "restore_ack_ms"
	restoreReAck     = "restore_rehearsed_ack_ms"
	restoreBoundAck  = "restore_bound_ack_ms"
	restoreBoundPy   = "restore_bound_python_ms"
	restorePython    = "restore_python_ms"
	restoreNode      = "restore_node_ms"
	restoreRePython  = "restore_rehearsed_python_ms"
	restoreRePandas  = "restore_rehearsed_pandas_ms"
	restoreReNode    = "restore_rehearsed_node_ms"
	pause8           = "pause_8mb_ms"
	pause256         = "pause_256mb_ms"
	rollbackRuns     = "rollback_ms"
	rollbackAck      = "rollback_ack_ms"
	rollbackPython   = "rollback_python_ms"
	fork100          = "fork100_ms"
	fork100Python    = "fork100_python_ms"
	jobsPerSecond    = "jobs_per_s"
	touch128         = "touch_128mb_ms"
	pandasVsHost     = "pandas_1m_vs_host"
	chainDepth       = "chain_depth_ratio"
	deltaTrivial     = "delta_trivial_kib"
	pssPerFork       = "pss_per_fork_mib"
	unitMilliseconds = "ms"
	unitPerSecond    = "1/s"
	unitRatio        = "x"
	unitKiB          = "KiB"
	unitMiB          = "MiB"
)

// distribution sums up samples for which less is better.
func distribution(name, unit string, samples []float64) Metric {
	return Metric{
		Name: name, Unit: unit, N: len(samples),
		P50: round(stats.Median(samples)), P95: round(stats.Percentile(samples, 0.95)), P99: round(stats.Percentile(samples, 0.99)),
	}
}

// rates sums up samples for which more is better: p95 is what 95 of 100 reach.
func rates(name, unit string, samples []float64) Metric {
	return Metric{
		Name: name, Unit: unit, N: len(samples),
		P50: round(stats.Median(samples)), P95: round(stats.Percentile(samples, 0.05)), P99: round(stats.Percentile(samples, 0.01)),
	}
}

// ratio compares samples taken in pairs: the ratio of the medians, and the percentiles
// of the pairs' ratios.
func ratio(name string, over, under []float64) Metric {
	pairs := stats.Pairwise(over, under)
	return Metric{
		Name: name, Unit: unitRatio, N: len(pairs),
		P50: round(stats.Median(over) / stats.Median(under)), P95: round(stats.Percentile(pairs, 0.95)), P99: round(stats.Percentile(pairs, 0.99)),
	}
}

// withFloor adds the floor's median.
func (m Metric) withFloor(samples []float64) Metric {
	if v := stats.Median(samples); !math.IsNaN(v) {
		v = round(v)
		m.FloorP50 = &v
	}
	return m
}

// round leaves a thousandth: a microsecond of a millisecond.
func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// Head is the table's first line.
func Head() string {
	return fmt.Sprintf("%-28s %9s %9s %9s %-4s %5s %9s %7s", "metric", "p50", "p95", "p99", "unit", "n", "floor", "÷floor")
}

// Text is the metric as a row for people.
func (m Metric) Text() string {
	floor, times := "–", "–"
	if m.FloorP50 != nil && *m.FloorP50 > 0 && m.P50 > 0 {
		floor, times = fmt.Sprintf("%.2f", *m.FloorP50), fmt.Sprintf("%.1f", m.P50 / *m.FloorP50)
	}
	return fmt.Sprintf("%-28s %9.2f %9.2f %9.2f %-4s %5d %9s %7s  %s", m.Name, m.P50, m.P95, m.P99, m.Unit, m.N, floor, times, m.Detail)
}
