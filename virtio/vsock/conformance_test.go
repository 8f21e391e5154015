package vsock

import (
	"testing"

	"thaw/virtio/devicetest"
)

type device = devicetest.Device[State]

func TestConformance(t *testing.T) {
	devicetest.Conformance(t, devicetest.Case[State]{
		Make: func(t testing.TB) (device, func(State) (device, error)) {
			options := Options{CID: guestCID}
			d, err := New(options)
			if err != nil {
				t.Fatal(err)
			}
			return d, func(s State) (device, error) { return Restore(options, s) }
		},
		// A connection to a port where nobody listens: the answer is a reset.
		Request: func(r *devicetest.Rig) int {
			h := header{srcCID: guestCID, dstCID: hostCID, srcPort: 5, dstPort: 6, kind: typeStream, op: opRequest}
			var b [headerSize]byte
			h.encode(&b)
			rx, tx := r.Queues[receiveQueue], r.Queues[transmitQueue]
			rx.Add(rx.Writable(rxSize))
			tx.Add(tx.Readable(b[:]))
			return transmitQueue
		},
		Broken: map[string]func(*State){
			"context id":  func(s *State) { s.CID++ },
			"connections": func(s *State) { s.Connections = maxConns + 1 },
			"port":        func(s *State) { s.NextPort = firstHostPort - 1 },
		},
		Golden: State{CID: guestCID, Connections: 2, NextPort: firstHostPort + 7},
	})
}
