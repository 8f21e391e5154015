package block

import (
	"os"
	"testing"

	"thaw/virtio/block/disk"
	"thaw/virtio/devicetest"
)

type device = devicetest.Device[State]

// golden has something in every field.
var golden = State{
	ID: "vdb", Features: deviceFeatures(false),
	Disk: disk.State{
		Size: testSize, Layers: 2,
		Under: disk.Runs(nil).Append(disk.Run{First: 5, Count: 2, Zero: true}),
		Top:   disk.Runs(nil).Append(disk.Run{First: 1, Count: 3, Layer: 1, Zero: true}),
	},
	Counters: Counters{
		Reads: 1, Writes: 2, Flushes: 3, Discards: 4, WriteZeroes: 5, GetIDs: 6, Unsupported: 7, ReadBytes: 8,
		WrittenBytes: 9, Pooled: 10, Refused: 11, HostErrors: 12, NoSpace: 13,
	},
}

func TestConformance(t *testing.T) {
	devicetest.Conformance(t, devicetest.Case[State]{
		Make: func(t testing.TB) (device, func(State) (device, error)) {
			dir := t.TempDir()
			options := Options{ID: "vdb", Layers: []*os.File{diskFile(t, dir, testSize), diskFile(t, dir, 0)}}
			return newDeviceOn(t, options), func(s State) (device, error) { return Restore(options, s) }
		},
		Request: func(r *devicetest.Rig) int {
			q := r.Queues[0]
			q.Add(q.Readable(encodeHeader(typeOut, 8)), q.Readable(pattern(4096)), q.Writable(1))
			return 0
		},
		Broken: map[string]func(*State){
			"id":        func(s *State) { s.ID = "vda" },
			"read only": func(s *State) { s.ReadOnly = true },
			"features":  func(s *State) { s.Features |= 1 << 12 },
			"size":      func(s *State) { s.Disk.Size = 512 },
			"layers":    func(s *State) { s.Disk.Layers++ },
		},
		Golden: golden,
	})
}
