package disk

import (
	"fmt"
	"os"
	"testing"
)

// The cost of what a checkpoint and a rollback do to a disk of 8 GiB in which
// 10 000 blocks were written, each far from the others, on top of as many.
func BenchmarkFreezeAndDrop(b *testing.B) {
	bottom := file(b, nil)
	if err := bottom.Truncate(8 << 30); err != nil {
		b.Fatal(err)
	}
	block := fill(1, BlockSize)
	files := []*os.File{bottom, file(b, nil), file(b, nil)}
	d := mustOpen(b, false, files[:2]...)
	dirty := func() {
		for i := range int64(10000) {
			writeAt(b, d, i*197*BlockSize, block)
		}
	}
	dirty()
	if err := d.Freeze(files[2]); err != nil {
		b.Fatal(err)
	}
	b.Run("drop", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			dirty()
			b.StartTimer()
			if err := d.Drop(); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("state", func(b *testing.B) {
		dirty()
		for range b.N {
			d.State()
		}
	})
	if err := d.Drop(); err != nil {
		b.Fatal(err)
	}
	s := d.State()
	var err error
	b.Run("restore", func(b *testing.B) {
		for range b.N {
			if _, err := Restore(files, false, s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rewind", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			dirty()
			b.StartTimer()
			if d = Rewind(d, files, false, s); d == nil {
				b.Fatal("not the same disk")
			}
		}
	})
	b.Run("freeze", func(b *testing.B) {
		for range b.N {
			b.StopTimer()
			dirty()
			top := file(b, nil)
			b.StartTimer()
			if err := d.Freeze(top); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if d, err = Restore(files, false, s); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}

// BenchmarkRestoreDeep is a restore of a disk of many layers, each with some
// blocks of its own.
func BenchmarkRestoreDeep(b *testing.B) {
	for _, depth := range []int{2, 10, 100} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			files := []*os.File{file(b, fill(1, 64<<20)), file(b, nil)}
			d := mustOpen(b, false, files...)
			for len(files) < depth {
				writeAt(b, d, int64(len(files))*64*BlockSize, fill(2, 16*BlockSize))
				files = append(files, file(b, nil))
				if err := d.Freeze(files[len(files)-1]); err != nil {
					b.Fatal(err)
				}
			}
			s := d.State()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Restore(files, false, s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
