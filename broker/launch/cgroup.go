package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"thaw/broker"
	"thaw/broker/journal"
)

const (
	cgroupParent = "thaw"
	// vmmPids bounds thaw-vmm's threads: vCPUs, devices and the Go runtime's own.
	vmmPids = 128
	// cpuPeriod is cpu.max's period in microseconds, the kernel's default.
	cpuPeriod = 100_000
)

func (m *machine) cgroupPath() string {
	return filepath.Join(m.launcher.cfg.Host.Cgroup.Mount, cgroupParent, m.spec.ID)
}

// makeCgroup makes the cgroup that the machine is born in, with limits from the
// controllers that the host has. It returns nil where there is no cgroup v2; that
// is for development only, vmmproc refuses it otherwise.
func (m *machine) makeCgroup() (*os.File, error) {
	g := m.launcher.cfg.Host.Cgroup
	if g.Mount == "" {
		return nil, nil
	}
	parent := filepath.Join(g.Mount, cgroupParent)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("launch: make parent cgroup: %w", err)
	}
	for _, dir := range []string{g.Mount, parent} {
		for _, c := range []string{"cpu", "memory", "pids"} {
			if g.Has(c) {
				if err := writeCgroup(dir, "cgroup.subtree_control", "+"+c); err != nil {
					return nil, err
				}
			}
		}
	}
	path := m.cgroupPath()
	// Before it exists: a daemon that is killed before the machine's process has a record leaves nothing behind.
	if err := m.launcher.cfg.Journal.Write(m.spec.ID, journal.Record{Cgroup: path}); err != nil {
		return nil, err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return nil, fmt.Errorf("launch: make cgroup: %w", err)
	}
	m.onClose("cgroup", func() error { return journal.RemoveCgroup(path) })
	for _, v := range []struct{ controller, file, value string }{
		{"memory", "memory.max", strconv.FormatInt((m.spec.MemoryMiB+broker.VMMMiB)*mib, 10)},
		{"memory", "memory.swap.max", "0"},
		{"memory", "memory.oom.group", "1"},
		{"pids", "pids.max", strconv.Itoa(vmmPids)},
		{"cpu", "cpu.max", fmt.Sprintf("%d %d", m.spec.VCPUs*cpuPeriod+cpuPeriod/2, cpuPeriod)},
	} {
		if !g.Has(v.controller) {
			continue
		}
		// A kernel without swap accounting has no memory.swap.max: then nothing can be swapped either.
		if err := writeCgroup(path, v.file, v.value); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	f, err := os.OpenFile(path, unix.O_DIRECTORY|unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("launch: open cgroup: %w", err)
	}
	return f, nil
}

func writeCgroup(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(value)
		f.Close()
	}
	if err != nil {
		return fmt.Errorf("launch: set %s to %s: %w", file, value, err)
	}
	return nil
}
