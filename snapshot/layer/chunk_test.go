package layer

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// What is remembered of a hole says of each range what a look at it alone says, also when
// ranges are left out.
func TestDataFinder(t *testing.T) {
	const ranges, size = 200, 16 << 10
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(ranges * size); err != nil {
			t.Fatal(err)
		}
		for range seed {
			if _, err := f.WriteAt(zeroPage[:], rng.Int64N(ranges*size-pageSize)); err != nil {
				t.Fatal(err)
			}
		}
		look := dataFinder{file: f}
		for i := rng.Int64N(3); i < ranges; i += 1 + rng.Int64N(3) {
			alone := dataFinder{file: f}
			want, err := alone.hasData(i*size, size)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := look.hasData(i*size, size); err != nil || got != want {
				t.Errorf("seed %d, range %d: %t, %v, want %t", seed, i, got, err, want)
			}
		}
	}
}
