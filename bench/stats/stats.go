// Package stats sums up samples: exact percentiles, since there are few.
package stats

import (
	"math"
	"slices"
)

// Percentile returns the smallest sample that at least a share p (0 < p ≤ 1) of
// the samples do not exceed (nearest rank); NaN without samples.
func Percentile(samples []float64, p float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	rank := int(math.Ceil(p * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

// Median is the middle sample, or the mean of the two middle ones.
func Median(samples []float64) float64 {
	n := len(samples)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Pairwise divides samples taken side by side.
func Pairwise(a, b []float64) []float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}
