package vmm

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"thaw/internal/guestmem"
	"thaw/snapshot/memimage"
)

// TestProgramWritesEntries has the processor write entries alone, in rows, in rows
// that end at a page's end, and as many as there may be; nothing else changes.
func TestProgramWritesEntries(t *testing.T) {
	m := pausedMachine(t, testConfig(t, join(asmRegisters, asmPrint("go"), asmSpin)))
	rng := rand.New(rand.NewPCG(1, 2))
	for name, rows := range map[string][]int{
		"one":  {1},
		"rows": {1, 2, 3, 1, 512, 7, 1},
		"most": {512, 512, 512, 512, 512, 440},
		"far":  slices.Repeat([]int{1}, maxEntries),
	} {
		t.Run(name, func(t *testing.T) {
			var entries []memimage.Entry
			at := uint64(16 << 20)
			for _, n := range rows {
				at += 8 * (2 + rng.Uint64N(100))
				if n == guestmem.PageSize/8 {
					at = (at + guestmem.PageSize - 1) &^ (guestmem.PageSize - 1)
				}
				for range n {
					entries = append(entries, memimage.Entry{Offset: at, Value: rng.Uint64() | 1})
					at += 8
				}
			}
			want := bytes.Clone(m.mem.Host()[16<<20 : at+4096])
			for _, e := range entries {
				binary.LittleEndian.PutUint64(want[e.Offset-16<<20:], e.Value)
			}
			if err := m.rewrite(entries); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.mem.Host()[16<<20:at+4096], want) {
				t.Error("memory is another")
			}
			if !m.written(entries) {
				t.Error("entries are not all written")
			}
		})
	}
}
