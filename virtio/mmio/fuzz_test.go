package mmio

import (
	"encoding/binary"
	"testing"
)

// FuzzDriver lets the fuzzer play the driver: any sequence of accesses.
// Whatever it does, a device that is active has rings inside of memory, and a
// reset brings the transport back.
func FuzzDriver(f *testing.F) {
	access := func(offset uint16, v uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(nil, offset), v)
	}
	var boot []byte
	for _, a := range [][2]uint32{
		{regStatus, 1}, {regStatus, 3}, {regDriverFeatSel, 1}, {regDriverFeatures, 1}, {regStatus, 11},
		{regQueueSize, 16}, {regQueueDescLow, 0x1000}, {regQueueDriverLow, 0x2000}, {regQueueDeviceLow, 0x3000}, {regQueueReady, 1}, {regStatus, 15},
	} {
		boot = append(boot, access(uint16(a[0]), a[1])...)
	}
	f.Add(boot)
	f.Fuzz(func(t *testing.T, ops []byte) {
		r := newRig(t)
		for ; len(ops) >= 6; ops = ops[6:] {
			offset := uint64(binary.LittleEndian.Uint16(ops)) % (Size + 8)
			r.Write(offset, ops[2:6])
			r.get(offset)
		}
		r.put(regStatus, 0)
		r.start()
		if r.dev.active == nil {
			t.Error("transport did not come back after a reset")
		}
	})
}
