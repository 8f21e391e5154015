package hot

import (
	"context"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// BenchmarkMemory is what the daemon does for a restore: resolve and bring into
// memfds. "next" is a chain that has grown by one layer, with the layers hot.
func BenchmarkMemory(b *testing.B) {
	for _, depth := range []int{1, 7, 100, 127} {
		r := newRig(b, 16384)
		id := r.save("")
		for range depth {
			r.touch(250)
			id = r.save(id)
		}
		restore := func(c *Cache) {
			chain, err := r.s.Resolve(context.Background(), id)
			if err != nil {
				b.Fatal(err)
			}
			m, err := c.Memory(context.Background(), r.s, chain)
			if err != nil {
				b.Fatal(err)
			}
			m.Release()
			chain.Close()
		}
		hot := New(1 << 32)
		restore(hot)
		b.Run(fmt.Sprintf("hot/depth=%d", depth), func(b *testing.B) {
			for b.Loop() {
				restore(hot)
			}
			b.ReportMetric(float64(hot.Stats().Bytes)/(1<<20), "MiB-held")
		})
		b.Run(fmt.Sprintf("cold/depth=%d", depth), func(b *testing.B) {
			for b.Loop() {
				c := New(1 << 32)
				restore(c)
				c.Close()
			}
		})
		hot.Close()
	}
}

// BenchmarkOverlays is what the VMM pays for several overlays instead of one: the same
// 25 000 pages read by batches from 1, 3 and 8 files.
func BenchmarkOverlays(b *testing.B) {
	const pages = 24576
	dst, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		b.Fatal(err)
	}
	defer unix.Munmap(dst)
	for _, n := range []int{1, 3, 8} {
		var files []*os.File
		for range n {
			files = append(files, sealed(b, pages/n*page))
		}
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			for b.Loop() {
				for i, f := range files {
					for at := 0; at < pages/n; at += 512 {
						var v [][]byte
						for p := at; p < min(at+512, pages/n); p++ {
							v = append(v, dst[(p*n+i)*page:][:page])
						}
						if _, err := unix.Preadv(int(f.Fd()), v, int64(at)*page); err != nil {
							b.Fatal(err)
						}
					}
				}
			}
		})
		for _, f := range files {
			f.Close()
		}
	}
}
