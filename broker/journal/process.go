package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// killWait is how long a killed process may take to be gone: closing a VM takes
// tens of milliseconds, more on a busy host.
const killWait = 10 * time.Second

// Describe makes the record of a running process.
func Describe(pid int) (Record, error) {
	start, err := startTime(pid)
	if err != nil {
		return Record{}, err
	}
	return Record{PID: pid, StartTime: start, BootID: bootID()}, nil
}

var bootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
})

// startTime is field 22 of /proc/pid/stat. The second field, the program's name,
// may hold blanks and brackets: count from the last bracket.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("journal: start time of process %d: %w", pid, err)
	}
	return parseStartTime(b)
}

func parseStartTime(stat []byte) (uint64, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	const index = 22 - 3 // the first field after the name is the third
	if len(fields) <= index {
		return 0, errors.New("journal: process status is too short")
	}
	t, err := strconv.ParseUint(string(fields[index]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("journal: process start time: %w", err)
	}
	return t, nil
}

// killRecorded kills the process of a record if it still is that process, and
// waits until it is gone.
func killRecorded(r Record) (killed bool, err error) {
	if r.PID == 0 || r.BootID != bootID() {
		return false, nil
	}
	fd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("journal: open process %d: %w", r.PID, err)
	}
	defer unix.Close(fd)
	// The pidfd is held, so the number cannot be given away between this look and the signal.
	if now, err := startTime(r.PID); err != nil || now != r.StartTime {
		return false, nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		if errors.Is(err, unix.ESRCH) {
			return false, nil
		}
		return false, fmt.Errorf("journal: kill process %d: %w", r.PID, err)
	}
	return true, waitGone(fd, r.PID)
}

// waitGone waits for a pidfd to become readable, which is when its process ended.
func waitGone(fd, pid int) error {
	deadline := time.Now().Add(killWait)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("journal: process %d does not die", pid)
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("journal: wait for process %d: %w", pid, err)
		}
	}
}

// RemoveCgroup kills what is left in a machine's cgroup and removes it; "" and a
// path that is gone are none.
func RemoveCgroup(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(path, "cgroup.kill"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("1")
		f.Close()
	}
	// Missing where the cgroup is, and on kernels before 5.14.
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("journal: kill cgroup: %w", err)
	}
	deadline := time.Now().Add(killWait)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := unix.Rmdir(path)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) || time.Now().After(deadline) {
			return fmt.Errorf("journal: remove cgroup %s: %w", path, err)
		}
		time.Sleep(pause) // there is no event for "empty and dead"
	}
}
