package layer

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

const benchSize = 128 << 20

func benchFile(b *testing.B) (*os.File, *Sum) {
	c := make([]byte, benchSize)
	for i := range c {
		c[i] = byte(i >> 3)
	}
	f := file(b, c)
	s, err := Measure(context.Background(), f, benchSize)
	if err != nil {
		b.Fatal(err)
	}
	return f, s
}

func BenchmarkLoad(b *testing.B) {
	f, s := benchFile(b)
	for name, huge := range map[string]bool{"pages": false, "huge": true} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchSize)
			for b.Loop() {
				m, err := Load(context.Background(), f, s, "bench", huge)
				if err != nil {
					b.Fatal(err)
				}
				m.Close()
			}
		})
	}
}

// BenchmarkTouch is what huge pages are for: a private mapping of the layer is
// read once, a byte a page.
func BenchmarkTouch(b *testing.B) {
	f, s := benchFile(b)
	for name, huge := range map[string]bool{"pages": false, "huge": true} {
		m, err := Load(context.Background(), f, s, "bench", huge)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p, unmap, err := mapAligned(m, benchSize, unix.MAP_PRIVATE)
				if err != nil {
					b.Fatal(err)
				}
				var sum byte
				for at := 0; at < benchSize; at += pageSize {
					sum += p[at]
				}
				unmap()
			}
		})
		m.Close()
	}
}

func BenchmarkVerify(b *testing.B) {
	f, s := benchFile(b)
	b.SetBytes(benchSize)
	for b.Loop() {
		if err := Verify(context.Background(), f, s); err != nil {
			b.Fatal(err)
		}
	}
}
