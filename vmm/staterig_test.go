package vmm

import (
	"context"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// run runs the machine until the test, or the function returned, ends it.
func run(t testing.TB, m *Machine) (stop func()) {
	t.Helper()
	done := make(chan Exit, 1)
	go func() { done <- m.Run(context.Background()) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		m.Stop()
		if exit := <-done; exit.Reason != Stopped {
			t.Errorf("machine ended: %q (%s); console:\n%s", exit.Reason, exit.Detail, exit.Console)
		}
	}
	t.Cleanup(stop)
	return stop
}

// emptyMemory returns cfg with another memory file of the same size.
func emptyMemory(t testing.TB, cfg Config) Config {
	t.Helper()
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Memory = os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { cfg.Memory.Close() })
	if err := cfg.Memory.Truncate(int64(cfg.MemoryBytes)); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func copyMemory(to, from *Machine) {
	for _, r := range from.mem.Regions() {
		source, _ := from.mem.Slice(r.Base, r.Size)
		target, _ := to.mem.Slice(r.Base, r.Size)
		copy(target, source)
	}
}
