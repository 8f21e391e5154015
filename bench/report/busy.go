package report

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// vmms are names of programs that run machines, as in /proc/PID/comm, which has 15 bytes.
var vmms = []string{"thaw-vmm", "qemu-system", "firecracker", "cloud-hyperviso", "crosvm", "kvmtool", "lkvm"}

// Busy lists what else goes on on the host that makes figures worse than they are. Of
// machines those that exist already when it is called count.
func Busy() []string { return busy("/proc", runtime.NumCPU()) }

func busy(proc string, cpus int) []string {
	var list []string
	b, err := os.ReadFile(filepath.Join(proc, "loadavg"))
	if load, ok := parseLoad(string(b)); err == nil && ok && load > float64(cpus)/4 {
		list = append(list, fmt.Sprintf("load average is %.2f on %d CPUs", load, cpus))
	}
	counts := map[string]int{}
	entries, _ := os.ReadDir(proc)
	for _, e := range entries {
		if _, err := strconv.Atoi(e.Name()); err != nil {
			continue
		}
		comm, err := os.ReadFile(filepath.Join(proc, e.Name(), "comm"))
		if err != nil {
			continue // it has ended
		}
		for _, name := range vmms {
			if strings.HasPrefix(string(comm), name) {
				counts[name]++
			}
		}
	}
	for _, name := range vmms {
		if counts[name] > 0 {
			list = append(list, fmt.Sprintf("%d machines of others run (%s)", counts[name], name))
		}
	}
	return list
}

// parseLoad returns the load of the last minute (proc_loadavg(5)).
func parseLoad(text string) (float64, bool) {
	first, _, _ := strings.Cut(text, " ")
	load, err := strconv.ParseFloat(first, 64)
	return load, err == nil
}
