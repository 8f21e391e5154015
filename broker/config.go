package broker

import (
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"thaw/broker/admission"
	"thaw/internal/hostinfo"
)

// Config is what a daemon is told at start. Zero values get defaults.
type Config struct {
	StateDir string // inputs and artifacts of this daemon; emptied at start
	Version  string
	Dev      bool
	Host     hostinfo.Info
	Launcher Launcher
	Log      *slog.Logger

	Capacity admission.Need // for machines, reserves taken off; zero: from the host
	MaxQueue int            // jobs that wait for admission

	InputBytes       int64         // of one input
	TenantInputBytes int64         // of all inputs of a tenant
	TenantInputs     int           // inputs of a tenant
	TenantJobs       int           // unfinished jobs of a tenant
	KeepTenantJobs   int           // finished jobs kept for a tenant; older ones are deleted
	InputTTL         time.Duration // of an unused input

	LogBytes     int           // output kept in a job's event log
	AttachWait   time.Duration // how long a full log waits for a reader
	StallWait    time.Duration // how long a full log waits for a reader that takes nothing
	PutTimeout   time.Duration // for all inputs together
	StartTimeout time.Duration // for the guest to start the program
	StopGrace    time.Duration // between SIGTERM and SIGKILL
	KillGrace    time.Duration // between SIGKILL and the end of the machine
	CollectLimit time.Duration // for fetching all outputs
	CloseTimeout time.Duration // for destroying a machine
}

func (c *Config) setDefaults() {
	setDefault(&c.MaxQueue, 64)
	setDefault(&c.InputBytes, 2<<30)
	setDefault(&c.TenantInputBytes, 8<<30)
	setDefault(&c.TenantInputs, 4096)
	setDefault(&c.TenantJobs, 128)
	setDefault(&c.KeepTenantJobs, 64)
	setDefault(&c.InputTTL, time.Hour)
	setDefault(&c.LogBytes, 512<<10)
	setDefault(&c.AttachWait, 2*time.Second)
	setDefault(&c.StallWait, 30*time.Second)
	setDefault(&c.PutTimeout, 5*time.Minute)
	setDefault(&c.StartTimeout, 30*time.Second)
	setDefault(&c.StopGrace, 3*time.Second)
	setDefault(&c.KillGrace, 2*time.Second)
	setDefault(&c.CollectLimit, 2*time.Minute)
	setDefault(&c.CloseTimeout, 30*time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
}

func setDefault[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

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
