package balloon

import (
	"encoding/binary"
	"testing"

	"thaw/virtio/devicetest"
)

type device = devicetest.Device[State]

func TestConformance(t *testing.T) {
	devicetest.Conformance(t, devicetest.Case[State]{
		Make: func(t testing.TB) (device, func(State) (device, error)) {
			options := Options{MemoryBytes: memorySize, Reclaimer: spared{}}
			d, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			return d, func(s State) (device, error) { return Restore(options, s) }
		},
		Request: func(r *devicetest.Rig) int {
			r.Queues[inflate].Add(r.Queues[inflate].Readable(binary.LittleEndian.AppendUint32(nil, 7)))
			return inflate
		},
		Broken: map[string]func(*State){
			"target above memory": func(s *State) { s.TargetPages = memorySize/pageSize + pagesPerMiB },
			"part of a MiB":       func(s *State) { s.TargetPages++ },
		},
		Golden: State{TargetPages: 2 * pagesPerMiB, ActualPages: 300, Counters: Counters{
			Inflated: 1, Deflated: 2, ReportedBytes: 3, Reclaims: 4, Invalid: 5, Failed: 6,
		}},
	})
}

// spared is a Reclaimer that takes nothing, so that only the device writes.
type spared struct{}

func (spared) Reclaim(uint64, uint64) (bool, error) { return false, nil }
