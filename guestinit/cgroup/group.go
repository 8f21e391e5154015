package cgroup

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of a group; zero means none.
type Limits struct {
	MemoryBytes int64
	Pids        int64
	CPUMilli    int64 // thousandths of one CPU
}

// cpuPeriod is the period of cpu.max in microseconds.
const cpuPeriod = 100_000

// Group is the cgroup of one exec.
type Group struct {
	m    *Manager
	name string
	dir  *os.File
}

// FD returns the group's directory for CLONE_INTO_CGROUP. It stays owned by
// the group.
func (g *Group) FD() int { return int(g.dir.Fd()) }

// SetLimits sets the limits that are not zero and that the hierarchy has a
// controller for.
func (g *Group) SetLimits(l Limits) error {
	set := func(controller, file string, n int64, value string) error {
		if n == 0 || !g.m.has(controller) {
			return nil
		}
		if err := writeAt(g.dir, file, value); err != nil {
			return fmt.Errorf("cgroup: limit %s: %w", file, err)
		}
		return nil
	}
	quota := l.CPUMilli * cpuPeriod / 1000
	return errors.Join(
		set("memory", "memory.max", l.MemoryBytes, strconv.FormatInt(l.MemoryBytes, 10)),
		set("pids", "pids.max", l.Pids, strconv.FormatInt(l.Pids, 10)),
		set("cpu", "cpu.max", l.CPUMilli, strconv.FormatInt(max(quota, 1000), 10)+" "+strconv.Itoa(cpuPeriod)),
	)
}

// Kill sends SIGKILL to every process of the group, forks in flight included.
func (g *Group) Kill() error {
	if err := writeAt(g.dir, "cgroup.kill", "1"); err != nil {
		return fmt.Errorf("cgroup: kill: %w", err)
	}
	return nil
}

// Freeze stops every process that the group has or gets, but does not wait until
// they stand still. They can be killed.
func (g *Group) Freeze() error {
	if err := writeAt(g.dir, "cgroup.freeze", "1"); err != nil {
		return fmt.Errorf("cgroup: freeze group: %w", err)
	}
	return nil
}

// Add moves a process into the group. What memory it holds stays charged to where
// it was.
func (g *Group) Add(pid int) error {
	if err := writeAt(g.dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return fmt.Errorf("cgroup: move process %d: %w", pid, err)
	}
	return nil
}

// Procs lists the group's processes, the first some hundred if there are more.
func (g *Group) Procs() ([]int, error) {
	raw, err := readAt(g.dir, "cgroup.procs")
	if err != nil {
		return nil, fmt.Errorf("cgroup: list processes: %w", err)
	}
	var pids []int
	for _, word := range strings.Fields(raw) {
		pids = append(pids, int(number(word)))
	}
	return pids, nil
}

// Populated reports whether the group holds a process that is not a zombie.
func (g *Group) Populated() (bool, error) {
	raw, err := readAt(g.dir, "cgroup.events")
	if err != nil {
		return false, fmt.Errorf("cgroup: read events: %w", err)
	}
	return field(raw, "populated") != 0, nil
}

// Stats returns the group's counters.
func (g *Group) Stats() (Stats, error) { return readStats(g.dir, g.m.has) }

// CPU returns the processor time that the group used.
func (g *Group) CPU() (CPUTime, error) {
	raw, err := readAt(g.dir, "cpu.stat")
	if err != nil {
		return CPUTime{}, fmt.Errorf("cgroup: read cpu time: %w", err)
	}
	micros := func(name string) time.Duration { return time.Duration(field(raw, name)) * time.Microsecond }
	return CPUTime{micros("usage_usec"), micros("user_usec"), micros("system_usec")}, nil
}

// CPUTime is processor time, and how much of it was spent in user and in kernel mode.
type CPUTime struct {
	Total, User, System time.Duration
}

// Remove kills what is left in the group and removes it in the background.
// The Group must not be used afterwards. The channel is closed when the group is
// gone, and its processes' memory with it, or has been given up.
func (g *Group) Remove() <-chan struct{} {
	gone := make(chan struct{})
	g.m.wg.Go(func() {
		g.rmdir()
		close(gone)
		g.m.Refill()
	})
	return gone
}

// rmdir removes the group. A group with zombies can be removed; one whose
// killed processes have not died yet cannot, so it tries for a while.
func (g *Group) rmdir() {
	for wait, end := time.Millisecond, time.Now().Add(rmdirPatience); ; wait *= 2 {
		err := unix.Unlinkat(int(g.m.dir.Fd()), g.name, unix.AT_REMOVEDIR)
		if !errors.Is(err, unix.EBUSY) || time.Now().After(end) {
			break
		}
		_ = g.Kill() // it may have been populated again by a fork in flight
		time.Sleep(wait)
	}
	g.dir.Close()
}

// writeAt writes value into a file below dir.
func writeAt(dir *os.File, name, value string) error {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(value)); err != nil {
		return &os.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

// readAt reads a small file below dir.
func readAt(dir *os.File, name string) (string, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var buf [4096]byte // memory.stat has some 1700 bytes
	n, err := unix.Read(fd, buf[:])
	if err != nil {
		return "", &os.PathError{Op: "read", Path: name, Err: err}
	}
	return string(buf[:n]), nil
}

// field returns the number after a name in a flat keyed file, or 0.
func field(raw, name string) int64 {
	for line := range strings.Lines(raw) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return number(rest)
		}
	}
	return 0
}

// number reads a counter; "max" and what is no number are 0.
func number(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}
