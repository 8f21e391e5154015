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
		Golden: State{MAC: testOptions.MAC, MTU: testOptions.MTU, Offload: testOptions.Offload, LinkDown: true, Counters: Counters{
			SendFrames: 1, SendBytes: 2, SendRunts: 3, SendOversize: 4, SendMalformed: 5, SendFull: 6, SendRefused: 7,
			ReceiveFrames: 8, ReceiveBytes: 9, ReceiveSplit: 10, ReceiveStarved: 11, ReceiveOversize: 12, ReceiveDropped: 13,
			ReceiveStale: 14,
		}},
	})
}
