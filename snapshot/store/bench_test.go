package store

import (
	"context"
	"fmt"
	"testing"
)

// benchChain is a store with a chain of depth checkpoints.
func benchChain(b *testing.B, depth int) (*Store, *machine, string) {
	s := open(b, b.TempDir())
	m := newMachine(b, 41)
	id := m.mustSave(s, "")
	for range depth {
		m.run()
		id = m.mustSave(s, id)
	}
	return s, m, id
}

// BenchmarkResolve is what the daemon does for a restore, but for the memory.
func BenchmarkResolve(b *testing.B) {
	for _, depth := range []int{1, 100} {
		s, _, id := benchChain(b, depth)
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c, err := s.Resolve(context.Background(), id)
				if err != nil {
					b.Fatal(err)
				}
				c.Close()
			}
		})
		s.Close()
	}
}

// BenchmarkCommit is a small checkpoint until it is durable.
func BenchmarkCommit(b *testing.B) {
	for _, depth := range []int{1, 100} {
		s, m, id := benchChain(b, depth)
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				m.run()
				d, err := s.Begin(Spec{Kind: Checkpoint, Parent: id, Machine: testMachine})
				if err != nil {
					b.Fatal(err)
				}
				c := m.content(Checkpoint)
				b.StartTimer()
				if _, err := d.Commit(context.Background(), c); err != nil {
					b.Fatal(err)
				}
			}
		})
		s.Close()
	}
}
