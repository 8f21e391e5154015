package pageindex

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// chain is the merged index of a template of 512 MiB under depth checkpoints that
// each change 250 scattered pages, and the last checkpoint's delta.
func chain(depth int) (merged, delta *Index) {
	rng := rand.New(rand.NewPCG(1, 2))
	const pages = 512 << 20 / PageSize
	merged = &Index{Pages: pages}
	for at := uint32(0); at+4000 < pages/4; at += 4500 {
		merged.Runs = append(merged.Runs, Run{First: at, Count: 4000, Source: Base, At: at})
	}
	for i := range depth {
		b := NewBuilder(pages)
		next := uint32(0)
		for at := rng.Uint32N(300); at < pages/4; at += 1 + rng.Uint32N(260) {
			b.add(Run{First: at, Count: 1, Source: uint16(FirstOverlay + i), At: next})
			next++
		}
		delta = b.Index()
		merged = Merge(merged, delta).WithoutZero()
	}
	return merged, delta
}

func BenchmarkMerge(b *testing.B) {
	for _, depth := range []int{1, 100} {
		merged, delta := chain(depth)
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(merged.Runs)), "runs")
			for b.Loop() {
				Merge(merged, delta)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, depth := range []int{1, 100} {
		merged, _ := chain(depth)
		code := merged.Encode()
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			b.ReportMetric(float64(len(code)), "encoded-bytes")
			for b.Loop() {
				if _, err := Decode(code, merged.Pages); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
