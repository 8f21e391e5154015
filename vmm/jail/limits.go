package jail

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// setLimits sets soft and hard limits, which hold for the whole process. Memory and CPU are the cgroup's.
func setLimits(o Options) error {
	for _, l := range []struct {
		name     string
		resource int
		value    uint64
	}{
		{"open files", unix.RLIMIT_NOFILE, o.OpenFiles},
		// Own user id per machine, so this counts our threads alone.
		{"threads", unix.RLIMIT_NPROC, o.Threads},
		// A writable disk layer is a sparse file of the disk's size: without this limit a VMM under someone
		// else's control could grow it until the host's disk is full.
		{"file size", unix.RLIMIT_FSIZE, o.FileBytes},
		// A core file would hold the guest's memory.
		{"core size", unix.RLIMIT_CORE, 0},
		{"locked memory", unix.RLIMIT_MEMLOCK, 0},
		{"message queues", unix.RLIMIT_MSGQUEUE, 0},
	} {
		// What the host allows to nobody stays: only real root may raise a hard limit.
		var now unix.Rlimit
		if err := unix.Getrlimit(l.resource, &now); err != nil {
			return fmt.Errorf("read %s: %w", l.name, err)
		}
		value := min(l.value, now.Max)
		if err := unix.Setrlimit(l.resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("%s to %d: %w", l.name, value, err)
		}
	}
	return nil
}
