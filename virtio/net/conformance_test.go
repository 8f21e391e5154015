package net

import (
	"testing"

	"thaw/virtio/devicetest"
)

type device = devicetest.Device[State]

func TestConformance(t *testing.T) {
	devicetest.Conformance(t, devicetest.Case[State]{
		Make: func(t testing.TB) (device, func(State) (device, error)) {
			w := newWire(t)
			d, err := New(w.near, testOptions)
			if err != nil {
				t.Fatal(err)
			}
			return d, func(s State) (device, error) { return Restore(w.near, testOptions, s) }
		},
		Request: func(r *devicetest.Rig) int {
			q := r.Queues[sendQueue]
			q.Add(q.Readable(append(plain[:headerSize:headerSize], frame(100)...)))
			return sendQueue
		},
		Broken: map[string]func(*State){
			"address":  func(s *State) { s.MAC[5]++ },
			"mtu":      func(s *State) { s.MTU++ },
			"offloads": func(s *State) { s.Offload = !s.Offload },
		},
	})
}
