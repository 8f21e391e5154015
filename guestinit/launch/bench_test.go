package launch_test

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/guestinit/cgroup"
	"thaw/guestinit/guesttest"
	"thaw/guestinit/launch"
	"thaw/guestinit/reaper"
)

func TestMain(m *testing.M) { guesttest.HostMain(m) }

// BenchmarkStart measures the part of an exec that starts and collects the
// program, with and without limits to set.
func BenchmarkStart(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	mount := guesttest.CgroupMount(b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := reaper.New()
	go r.Run(ctx)
	l, err := launch.New(r)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	m, err := cgroup.New(cgroup.Config{Mount: mount, Name: "bench-launch"})
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	g, err := m.New()
	if err != nil {
		b.Fatal(err)
	}
	defer g.Remove()
	null, err := os.Open(os.DevNull)
	if err != nil {
		b.Fatal(err)
	}
	fd := int(null.Fd())
	for b.Loop() {
		p, err := l.Start(launch.Spec{
			Path: "/bin/true", Argv: []string{"true"}, Dir: "/", UID: 10001, GID: 10001, CgroupFD: g.FD(),
			Stdio:   [3]int{fd, fd, fd},
			Rlimits: []launch.Rlimit{{Resource: unix.RLIMIT_CORE}, {Resource: unix.RLIMIT_NOFILE, Soft: 64, Hard: 64}},
		})
		if err != nil {
			b.Fatal(err)
		}
		<-p.Done()
	}
}

// BenchmarkGroup measures making and removing a group.
func BenchmarkGroup(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	m, err := cgroup.New(cgroup.Config{Mount: guesttest.CgroupMount(b), Name: "bench-group"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		g, err := m.New()
		if err != nil {
			b.Fatal(err)
		}
		g.Remove()
	}
	if err := m.Close(); err != nil {
		b.Error(err)
	}
}
