package boot

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/guestinit/launch"
	"thaw/internal/loopback"
)

// hostname is the same in every guest: forks share it, and nothing of the
// host shows.
const hostname = "sandbox"

// settings are written once. Kernels differ, so one that a kernel lacks is
// skipped; one that cannot be written is an error.
var settings = []struct{ path, value string }{
	// Huge pages for those who ask: several times faster where a page fault
	// is dear. The kernel turns them off below 512 MiB whatever it was built
	// with.
	{"/sys/kernel/mm/transparent_hugepage/enabled", "madvise"},
	{"/sys/kernel/mm/transparent_hugepage/defrag", "madvise"},
	{"/sys/kernel/mm/transparent_hugepage/shmem_enabled", "advise"},
	// A huge page that is read first would be one of zeros that all share, and come in
	// small pages when it is written. The kernel does so from 512 MiB on.
	{"/sys/kernel/mm/transparent_hugepage/use_zero_page", "0"},

	// None is made behind a program's back of small pages that it has: half a minute after a
	// restore that wrote megabytes in a machine which did nothing. (max_ptes_none stays: with
	// less, the kernel also takes huge pages of zeros apart to save a program from its limit.)
	{"/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "4294967295"},

	// A CPU's list of free pages is as short as it can be. One that has grown is
	// shortened by the kernel a second later: in a machine restored meanwhile it
	// wrote thousands of page structs, each page of which is a copy.
	{"/proc/sys/vm/percpu_pagelist_high_fraction", "4096"},

	// No looking every half second for memory to compact: it reads all page structs.
	// Who wants a huge page still has memory compacted.
	{"/proc/sys/vm/compaction_proactiveness", "0"},
	// Counters are folded each minute, not each second. Who reads /proc/meminfo is off
	// by some hundred pages at most.
	{"/proc/sys/vm/stat_interval", "60"},

	// What jobs may learn and reach.
	{"/proc/sys/kernel/dmesg_restrict", "1"},
	{"/proc/sys/kernel/kptr_restrict", "2"},
	{"/proc/sys/kernel/unprivileged_bpf_disabled", "1"},
	{"/proc/sys/kernel/perf_event_paranoid", "3"},
	{"/proc/sys/kernel/yama/ptrace_scope", "2"}, // the launcher's kind of tracing stays possible
	{"/proc/sys/kernel/kexec_load_disabled", "1"},
	{"/proc/sys/kernel/io_uring_disabled", "2"},
	{"/proc/sys/kernel/sysrq", "0"},
	{"/proc/sys/vm/unprivileged_userfaultfd", "0"},
	{"/proc/sys/user/max_user_namespaces", "0"}, // clone3 hides its flags from the seccomp filter
	{"/proc/sys/dev/tty/legacy_tiocsti", "0"},
	{"/proc/sys/dev/tty/ldisc_autoload", "0"},
	{"/proc/sys/fs/protected_hardlinks", "1"},
	{"/proc/sys/fs/protected_symlinks", "1"},
	{"/proc/sys/fs/protected_fifos", "1"},
	{"/proc/sys/fs/protected_regular", "1"},
	{"/proc/sys/fs/suid_dumpable", "0"},

	// A kernel in doubt ends the machine, which the host sees and names.
	{"/proc/sys/kernel/panic_on_oops", "1"},
	{"/proc/sys/kernel/panic", "-1"},
}

// applySettings writes the settings, names the host and brings loopback up.
func applySettings() error {
	for _, s := range settings {
		if err := writeSetting(s.path, s.value); err != nil {
			return fmt.Errorf("set %s: %w", s.path, err)
		}
	}
	if err := unix.Sethostname([]byte(hostname)); err != nil {
		return fmt.Errorf("set hostname: %w", err)
	}
	// A job's defaults do PID 1 no harm, and its children inherit them.
	for _, l := range launch.DefaultRlimits() {
		if err := unix.Setrlimit(l.Resource, &unix.Rlimit{Cur: l.Soft, Max: l.Hard}); err != nil {
			return fmt.Errorf("set rlimit %d: %w", l.Resource, err)
		}
	}
	return loopback.Up()
}

func writeSetting(path, value string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = unix.Write(fd, []byte(value))
	return errors.Join(err, os.NewSyscallError("close", unix.Close(fd)))
}
