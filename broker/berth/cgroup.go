package berth

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"thaw/broker/journal"
)

const (
	cgroupParent = "thaw"
	// vmmPids bounds thaw-vmm's threads: vCPUs, devices and the Go runtime's own.
	vmmPids = 128
	// cpuPeriod is cpu.max's period in microseconds, the kernel's default.
	cpuPeriod = 100_000
)

// makeCgroup makes the cgroup that the machine is born in, with limits from the
// controllers that the host has. There is none without cgroup v2; that is for
// development only, vmmproc refuses it otherwise.
func (b *Berth) makeCgroup(spec Spec) error {
	g := b.yard.cgroups
	if g.Mount == "" {
		return nil
	}
	parent := filepath.Join(g.Mount, cgroupParent)
	b.yard.parentOnce.Do(func() { b.yard.parentErr = b.yard.makeParent(parent) })
	if b.yard.parentErr != nil {
		return b.yard.parentErr
	}
	path := filepath.Join(parent, spec.ID)
	// Before it exists: a daemon that is killed before the machine's process has a record leaves nothing behind.
	if err := b.yard.journal.Write(spec.ID, journal.Record{Cgroup: path}); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("berth: make cgroup: %w", err)
	}
	b.OnClose("cgroup", func() error { return journal.RemoveCgroup(path) })
	b.cgroup, b.memoryMiB = path, spec.MemoryMiB+VMMMiB
	for _, v := range []struct{ controller, file, value string }{
		{"memory", "memory.max", strconv.FormatInt(b.memoryMiB*mib, 10)},
		{"memory", "memory.swap.max", "0"},
		{"memory", "memory.oom.group", "1"},
		{"pids", "pids.max", strconv.Itoa(vmmPids)},
		{"cpu", "cpu.max", fmt.Sprintf("%d %d", spec.VCPUs*cpuPeriod+cpuPeriod/2, cpuPeriod)},
	} {
		if !g.Has(v.controller) {
			continue
		}
		// A kernel without swap accounting has no memory.swap.max: then nothing can be swapped either.
		if err := writeCgroup(path, v.file, v.value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("berth: open cgroup: %w", err)
	}
	b.Cgroup = f
	b.OnClose("cgroup's folder", f.Close)
	return nil
}

// AllowMemory raises the limit of memory to that many MiB above the machine's own.
func (b *Berth) AllowMemory(mibs int64) error {
	if b.cgroup == "" || !b.yard.cgroups.Has("memory") {
		return nil
	}
	return writeCgroup(b.cgroup, "memory.max", strconv.FormatInt((b.memoryMiB+mibs)*mib, 10))
}

// makeParent makes the cgroup of all machines, and gives it the controllers.
func (y *Yard) makeParent(parent string) error {
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fmt.Errorf("berth: make parent cgroup: %w", err)
	}
	for _, dir := range []string{y.cgroups.Mount, parent} {
		for _, c := range []string{"cpu", "memory", "pids"} {
			if y.cgroups.Has(c) {
				if err := writeCgroup(dir, "cgroup.subtree_control", "+"+c); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func writeCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("berth: set %s to %s: %w", file, value, err)
	}
	return nil
}
