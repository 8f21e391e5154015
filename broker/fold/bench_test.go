package fold

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"testing"

	"thaw/snapshot/format"
	"thaw/virtio/block/disk"
	"thaw/vmm"
)

// BenchmarkRestore is what a restore does with the disks of a chain: the daemon's part, once
// a snapshot's files were opened before ("hot") or never ("cold", with every layer
// verified and groups folded), and the VMM's.
func BenchmarkRestore(b *testing.B) {
	for _, depth := range []int{1, 10, 31, 33, 100} {
		root := b.TempDir()
		r := newRig(b, root)
		id := r.mustSave("")
		for range depth {
			r.write(2)
			id = r.mustSave(id)
		}
		reopen := func() { // not the sub-benchmark's, which would close it
			r.s.Close()
			r.s = open(b, root)
		}
		resolve := func() int {
			c, err := r.s.Resolve(context.Background(), id)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			return len(c.Disks[1].Files)
		}
		b.Run(fmt.Sprintf("cold/depth=%d", depth), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				reopen()
				b.StartTimer()
				resolve()
			}
		})
		files := resolve()
		b.Run(fmt.Sprintf("hot/depth=%d", depth), func(b *testing.B) {
			for b.Loop() {
				resolve()
			}
			b.ReportMetric(float64(files), "files")
		})
		c, err := r.s.Resolve(context.Background(), id)
		if err != nil {
			b.Fatal(err)
		}
		var layers []*os.File
		for _, f := range c.Disks[1].Files {
			if f == nil {
				f = r.origin
			}
			layers = append(layers, f)
		}
		layers = append(layers, r.file())
		state, err := io.ReadAll(io.NewSectionReader(c.State, 0, format.MaxFile))
		if err != nil {
			b.Fatal(err)
		}
		file, err := format.Read(bytes.NewReader(state), format.Limits{})
		if err != nil {
			b.Fatal(err)
		}
		var m vmm.State
		if err := file.CBOR(format.SectionMachine, &m); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("vmm/depth=%d", depth), func(b *testing.B) {
			for b.Loop() {
				if _, err := disk.Restore(layers, false, m.Devices[1].Block.Disk); err != nil {
					b.Fatal(err)
				}
			}
		})
		c.Close()
		r.s.Close()
	}
}
