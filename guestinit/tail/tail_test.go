package tail

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"
)

func TestTail(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		tl := Tail{Max: rng.IntN(50)}
		var all []byte
		for range rng.IntN(20) {
			b := make([]byte, rng.IntN(40))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			all = append(all, b...)
			tl.Add(b)
		}
		got, err := io.ReadAll(tl.Reader())
		if err != nil {
			t.Fatal(err)
		}
		want := all[max(0, len(all)-tl.Max):]
		if !bytes.Equal(got, want) || tl.Dropped != int64(len(all)-len(want)) {
			t.Fatalf("max %d: kept %d of %d bytes, dropped %d", tl.Max, len(got), len(all), tl.Dropped)
		}
		if cap(tl.buf) > 2*tl.Max+64 {
			t.Fatalf("tail of %d holds %d bytes", tl.Max, cap(tl.buf))
		}
	}
}
