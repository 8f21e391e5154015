package broker

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"thaw/broker/admission"
)

// Reserves for the host and the broker, which machines never get.
const (
	reserveMinMiB  = 512
	reserveShare   = 10 // a tenth of memory and disk
	brokerMiB      = 256
	machinesPerCPU = 16
	// CPUs are shared: a job that waits for something gives its CPU to others, and
	// each machine's cgroup bounds what it can take where the host has controllers.
	cpuOvercommit = 4
)

// HostCapacity is what a host can give to machines whose files are in dir.
func HostCapacity(dir string) (admission.Need, error) {
	total, err := memTotalMiB()
	if err != nil {
		return admission.Need{}, err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return admission.Need{}, fmt.Errorf("broker: free space of %s: %w", dir, err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	cpus := int64(runtime.NumCPU())
	return admission.Need{
		MemoryMiB: total - max(reserveMinMiB, total/reserveShare) - brokerMiB,
		DiskBytes: free - free/reserveShare,
		CPUMilli:  cpus * 1000 * cpuOvercommit,
		Machines:  cpus * machinesPerCPU,
	}, nil
}

func memTotalMiB() (int64, error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("broker: memory of the host: %w", err)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == "MemTotal:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("broker: memory of the host: %w", err)
			}
			return kib / 1024, nil
		}
	}
	return 0, fmt.Errorf("broker: memory of the host: no MemTotal in /proc/meminfo")
}
