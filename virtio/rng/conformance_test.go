package rng

import (
	"testing"

	"thaw/virtio/devicetest"
)

type device = devicetest.Device[State]

func TestConformance(t *testing.T) {
	devicetest.Conformance(t, devicetest.Case[State]{
		Make: func(t testing.TB) (device, func(State) (device, error)) {
			options := Options{Rate: DefaultRate}
			d, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			return d, func(s State) (device, error) { return Restore(options, s) }
		},
		Request: func(r *devicetest.Rig) int {
			r.Queues[0].Add(r.Queues[0].Writable(64))
			return 0
		},
		Broken: map[string]func(*State){
			"rate":   func(s *State) { s.Rate++ },
			"tokens": func(s *State) { s.Tokens = DefaultRate + 1 },
			"debt":   func(s *State) { s.Tokens = -MaxRequest - 1 },
		},
		Golden: State{Rate: DefaultRate, Tokens: -300, Counters: Counters{Requests: 1, Bytes: 2, Throttled: 3}},
	})
}
