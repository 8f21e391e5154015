package stats

import (
	"math"
	"testing"
)

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i) // unsorted on purpose
	}
	for _, c := range []struct {
		name    string
		samples []float64
		p, want float64
	}{
		{"one", []float64{7}, 0.99, 7},
		{"few: the largest", []float64{3, 1, 2}, 0.95, 3},
		{"median of three", []float64{3, 1, 2}, 0.5, 2},
		{"nearest rank", hundred, 0.95, 95},
		{"all", hundred, 1, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Percentile(c.samples, c.p); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	if hundred[0] != 100 {
		t.Error("the samples were sorted in place")
	}
	if !math.IsNaN(Percentile(nil, 0.5)) || !math.IsNaN(Median(nil)) {
		t.Error("no samples gave a number")
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    float64
	}{{[]float64{5}, 5}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 4}, 4}, {[]float64{9, 1, 4, 6}, 5}} {
		if got := Median(c.samples); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.samples, got, c.want)
		}
	}
}

func TestPairwise(t *testing.T) {
	got := Pairwise([]float64{6, 8, 1}, []float64{3, 2})
	if len(got) != 2 || got[0] != 2 || got[1] != 4 {
		t.Errorf("got %v", got)
	}
}
