package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// vmms lists the processes named thaw-vmm that are children of a daemon.
func vmms(proc string, daemon int) ([]int, error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: list processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // it has ended
		}
		if name, parent, ok := parseStat(string(b)); ok && name == "thaw-vmm" && parent == daemon {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// parseStat returns the name and the parent of a process (proc_pid_stat(5)). The name may
// have anything in it.
func parseStat(text string) (name string, parent int, ok bool) {
	begin, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if begin < 0 || end < begin {
		return "", 0, false
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 2 {
		return "", 0, false
	}
	parent, err := strconv.Atoi(fields[1])
	return text[begin+1 : end], parent, err == nil
}

// parsePSS returns the proportional size in MiB that smaps_rollup tells
// (proc_pid_smaps(5)).
func parsePSS(text string) (float64, error) {
	kib, err := field(text, "Pss:")
	return float64(kib) / 1024, err
}

// availableMiB is the host's available memory.
func availableMiB() (float64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("checkpoint: memory of the host: %w", err)
	}
	kib, err := field(string(b), "MemAvailable:")
	return float64(kib) / 1024, err
}

// field returns a field that is a number of kB.
func field(text, name string) (kib int, err error) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("checkpoint: line %q: %w", line, err)
			}
			return kib, nil
		}
	}
	return 0, fmt.Errorf("checkpoint: there is no %s", name)
}
