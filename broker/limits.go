package broker

import (
	"fmt"
	"math"
	"runtime"

	"thaw/api"
	"thaw/broker/admission"
	"thaw/broker/berth"
)

const (
	mib = 1 << 20

	// A machine has more memory than its job may use: for the kernel, its page
	// tables and the page cache of the image.
	kernelMiB = 128
	// VMMMiB is what admission counts for thaw-vmm beside the guest's memory.
	VMMMiB = berth.VMMMiB

	minMemoryMiB = 32
	maxMemoryMiB = 15 << 10 // with kernelMiB below the machine's 16 GiB
	maxVCPUs     = 8

	// Writable disks come in powers of two, so that their templates are few.
	minDisk = 64 * mib
	maxDisk = 16 << 30
)

// maxLimits is the largest value of each limit on a host.
func maxLimits(capacity admission.Need) api.Limits {
	return api.Limits{
		WallSeconds:    24 * 3600,
		MemoryMiB:      min(maxMemoryMiB, memoryLimitFor(capacity.MemoryMiB-VMMMiB)),
		CPUCores:       float64(min(maxVCPUs, runtime.NumCPU())),
		Pids:           16384,
		WorkspaceBytes: floorPower(min(maxDisk, capacity.DiskBytes/2)),
		OutputBytes:    min(4<<30, capacity.DiskBytes/2),
		OutputFiles:    10000,
		StdoutBytes:    4 << 30,
	}
}

// machineMiB is the memory of a machine whose job may use memoryMiB: the kernel
// takes a fixed part and 1/32 for its page structures, in even MiB so that it is
// whole huge pages.
func machineMiB(memoryMiB int64) int64 { return (memoryMiB + memoryMiB/32 + kernelMiB + 1) &^ 1 }

// memoryLimitFor is the largest memory limit whose machine has at most m MiB.
func memoryLimitFor(m int64) int64 { return max(0, (m-kernelMiB-2)*32/33) }

// floorPower is the largest power of two that is not above n.
func floorPower(n int64) int64 {
	p := int64(1)
	for p <= n/2 {
		p *= 2
	}
	return p
}

// diskClass rounds a workspace, of at most maxDisk bytes, up to the size that its
// disk is made in.
func diskClass(bytes int64) int64 {
	class := int64(minDisk)
	for class < bytes && class < maxDisk {
		class *= 2
	}
	return class
}

// resolveLimits fills in defaults and refuses what is out of range. Defaults that
// exceed what a small host can give are lowered to it.
func resolveLimits(asked, defaults, most api.Limits) (api.Limits, *api.Error) {
	var err *api.Error
	pick := func(name string, asked, def, least, most int64) int64 {
		if asked == 0 {
			return min(def, most)
		}
		if (asked < least || asked > most) && err == nil {
			err = impossible(name, fmt.Sprint(asked), fmt.Sprint(least), fmt.Sprint(most))
		}
		return asked
	}
	l := api.Limits{
		WallSeconds:    pick("wall_seconds", asked.WallSeconds, defaults.WallSeconds, 1, most.WallSeconds),
		MemoryMiB:      pick("memory_mib", asked.MemoryMiB, defaults.MemoryMiB, minMemoryMiB, most.MemoryMiB),
		Pids:           pick("pids", asked.Pids, defaults.Pids, 1, most.Pids),
		WorkspaceBytes: pick("workspace_bytes", asked.WorkspaceBytes, defaults.WorkspaceBytes, 1, most.WorkspaceBytes),
		OutputBytes:    pick("output_bytes", asked.OutputBytes, defaults.OutputBytes, 1, most.OutputBytes),
		OutputFiles:    pick("output_files", asked.OutputFiles, defaults.OutputFiles, 1, most.OutputFiles),
		StdoutBytes:    pick("stdout_bytes", asked.StdoutBytes, defaults.StdoutBytes, 1, most.StdoutBytes),
		CPUCores:       asked.CPUCores,
	}
	const least = 0.1
	switch c := asked.CPUCores; {
	case c == 0:
		l.CPUCores = min(defaults.CPUCores, most.CPUCores)
	case math.IsNaN(c) || c < least || c > most.CPUCores:
		if err == nil {
			err = impossible("cpu_cores", fmt.Sprint(c), fmt.Sprint(least), fmt.Sprint(most.CPUCores))
		}
	}
	if err != nil {
		return api.Limits{}, err
	}
	l.WorkspaceBytes = diskClass(l.WorkspaceBytes)
	return l, nil
}

func impossible(name, got, least, most string) *api.Error {
	return api.Errorf(api.CodeLimitImpossible, "limit %s cannot be %s on this host", name, got).
		WithRemedy("choose a value from %s to %s", least, most)
}
