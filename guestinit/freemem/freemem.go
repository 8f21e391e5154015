// Package freemem makes the guest's memory free before it is saved, tells the host which
// is, and says how much there is. It runs as root in the guest.
package freemem

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// Drop writes the disks' data back and drops all cached files and this process's own
// garbage. It may take seconds.
func Drop() error {
	debug.FreeOSMemory()
	unix.Sync()
	return write("/proc/sys/vm/drop_caches", "3")
}

// Report brings free memory into large pieces, which are what the balloon and Linux's
// free page reporting go by, has the kernel report those, and returns how many bytes are
// free.
func Report() (int64, error) {
	if err := write("/proc/sys/vm/compact_memory", "1"); err != nil {
		return 0, err
	}
	// At once, where the kernel can (kernel/zeroed-pages.patch): in every machine of the
	// template it knows then which memory is zero, and has nothing to report. A stock
	// kernel cannot, nor one without a balloon.
	err := write("/proc/sys/vm/report_free_memory", "1")
	if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
		return 0, err
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return 0, fmt.Errorf("freemem: size of free memory: %w", err)
	}
	return int64(si.Freeram) * int64(si.Unit), nil
}

func write(path, value string) error {
	if err := os.WriteFile(path, []byte(value), 0); err != nil {
		return fmt.Errorf("freemem: %w", err)
	}
	return nil
}
