package fleet

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// samples collects the times of phases, in milliseconds.
type samples map[string][]float64

func (s samples) add(r Record) {
	s["ack"] = append(s["ack"], r.Ack)
	for _, p := range r.Phases {
		s[p.Name] = append(s[p.Name], p.MS)
	}
}

func (s samples) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	slices.Sort(s["ack"])
	b.ReportMetric(s["ack"][len(s["ack"])/2], "ack-p50-ms")
	if b.N == 1 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		list := s[name]
		slices.Sort(list)
		fmt.Printf("%-32s p50 %8.3f  p10 %8.3f  min %8.3f  max %8.3f ms\n", name, list[len(list)/2], list[len(list)/10], list[0], list[len(list)-1])
	}
}

func benchRestore(b *testing.B, kind Kind, change func(*Config)) {
	r := newRig(b, change)
	id := r.template(small)
	if kind == Generic { // as the pool does it: then it is known which pages are written
		s, err := r.rehearse(b.Context(), id)
		if err != nil {
			b.Fatal(err)
		}
		r.discard(s)
	}
	s := samples{}
	for range b.N {
		r.awaitShells(Generic, 2)
		r.awaitShells(kind, 1)
		time.Sleep(30 * time.Millisecond)
		m := r.restore(id)
		if m.Record().Shell != kind {
			b.Fatalf("shell is %s", m.Record().Shell)
		}
		s.add(m.Record())
		start := time.Now()
		cell(b, m, "print(1+1)")
		s["first cell"] = append(s["first cell"], ms(time.Since(start)))
		start = time.Now()
		cell(b, m, "import pandas as pd; d = pd.DataFrame({'a': range(20000)}); d['b'] = d.a % 13; print(d.groupby('b').a.mean().sum())")
		s["pandas cell"] = append(s["pandas cell"], ms(time.Since(start)))
		start = time.Now()
		m.Close(b.Context())
		s["close"] = append(s["close"], ms(time.Since(start)))
	}
	s.report(b)
}

func BenchmarkRestoreRehearsed(b *testing.B) { benchRestore(b, Rehearsed, nil) }

func BenchmarkRestoreGeneric(b *testing.B) {
	benchRestore(b, Generic, func(c *Config) { c.Pool.Rehearsed = -1 })
}

func BenchmarkRollback(b *testing.B) {
	r := newRig(b, nil)
	m := r.restore(r.template(small))
	sh(b, m, "echo x > /workspace/x")
	c, err := m.Checkpoint(b.Context(), CheckpointSpec{})
	if err != nil {
		b.Fatal(err)
	}
	s := samples{}
	for range b.N {
		sh(b, m, "echo y > /workspace/x")
		time.Sleep(30 * time.Millisecond)
		rec, err := m.Rollback(b.Context(), c.ID)
		if err != nil {
			b.Fatal(err)
		}
		s.add(rec)
	}
	s.report(b)
}

func BenchmarkCheckpoint(b *testing.B) {
	r := newRig(b, nil)
	m := r.restore(r.template(small))
	s := samples{}
	for i := range b.N {
		sh(b, m, "echo y >> /workspace/x")
		time.Sleep(30 * time.Millisecond)
		c, err := m.Checkpoint(b.Context(), CheckpointSpec{})
		if err != nil {
			b.Fatal(i, err)
		}
		c.Record.Ack = c.Record.Pause
		s.add(c.Record)
		if _, err := c.Durable(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	s.report(b)
}

func BenchmarkFork100(b *testing.B) {
	r := newRig(b, func(c *Config) { c.Pool.Generic = 8; c.Pool.Rehearsed = -1 })
	id := r.template(small)
	rehearsed, err := r.rehearse(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	r.discard(rehearsed)
	m := r.restore(id)
	c := checkpoint(b, m)
	s := samples{}
	for range b.N {
		r.awaitShells(Generic, 8)
		before := cpuTime(b)
		start := time.Now()
		forks, err := r.Fork(b.Context(), c.ID, make([]RestoreSpec, 100))
		if err != nil {
			b.Fatal(err)
		}
		s["ack"] = append(s["ack"], ms(time.Since(start)))
		for _, f := range forks {
			for _, p := range f.Record().Phases {
				s[p.Name] = append(s[p.Name], p.MS)
			}
			f.Close(b.Context())
		}
		s["cpu of all processes"] = append(s["cpu of all processes"], ms(cpuTime(b)-before))
	}
	s.report(b)
}

// cpuTime is what this process and those that it has waited for have used: on a busy
// host it says more than the wall clock.
func cpuTime(b *testing.B) time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}

// What a shell costs by itself, and with a restore, as processor time.
func BenchmarkShellCPU(b *testing.B) {
	r := newRig(b, func(c *Config) { c.Pool.Generic = -1; c.Pool.Rehearsed = -1 })
	id := r.template(small)
	r.restore(id).Close(b.Context())
	s := samples{}
	for range b.N {
		before := cpuTime(b)
		shell, err := r.newShell(b.Context(), small, r.cfg.DiskBytes, false)
		if err != nil {
			b.Fatal(err)
		}
		_ = shell.destroy(b.Context(), r.Fleet)
		s["shell cpu"] = append(s["shell cpu"], ms(cpuTime(b)-before))
		before = cpuTime(b)
		m := r.restore(id)
		s.add(m.Record())
		m.Close(b.Context())
		s["shell, restore, end cpu"] = append(s["shell, restore, end cpu"], ms(cpuTime(b)-before))
	}
	s.report(b)
}
