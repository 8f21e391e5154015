package vsock

import (
	"errors"
	"os"
	"testing"
)

// FuzzPackets lets the fuzzer send packets, as the guest, on a device with a
// connection. Whatever it does, the device goes on or asks for a reset.
func FuzzPackets(f *testing.F) {
	packet := func(h header, payload string) []byte {
		h.srcCID, h.dstCID, h.kind, h.length = guestCID, hostCID, typeStream, uint32(len(payload))
		var b [headerSize]byte
		h.encode(&b)
		return append(b[:], payload...)
	}
	f.Add(packet(header{srcPort: 1, dstPort: firstHostPort, op: opData, bufAlloc: 9}, "data"), uint16(48))
	f.Add(packet(header{srcPort: 1, dstPort: firstHostPort, op: opShutdown, flags: 3}, ""), uint16(44))
	f.Add(packet(header{srcPort: 9, dstPort: 1025, op: opRequest}, ""), uint16(20))
	f.Fuzz(func(t *testing.T, stream []byte, step uint16) {
		r := newRig(t, func(uint32) (*os.File, error) { return nil, errors.New("refused") })
		r.dial(1, 1<<20)
		d := r.queues[transmitQueue]
		for n := 0; len(stream) > 0 && n < 64; n++ {
			k := min(int(step)%256+1, len(stream))
			d.Add(d.Readable(stream[:k]))
			stream = stream[k:]
		}
		r.kicks[transmitQueue].Signal()
		r.dev.Pause()
		r.dev.Resume()
	})
}

// FuzzConnectLine: any line is a port or an error.
func FuzzConnectLine(f *testing.F) {
	f.Add("CONNECT 1024")
	f.Add("CONNECT 99999999999")
	f.Fuzz(func(t *testing.T, line string) {
		if _, err := parseConnect(line); err != nil && !errors.Is(err, errConnectLine) {
			t.Error(err)
		}
	})
}
