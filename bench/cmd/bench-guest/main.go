// Command bench-guest is /init of the machines that bench loads: it mounts the
// image, runs the jobs named on the kernel's command line in it, prints each
// result on the console, and ends the machine.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"thaw/bench/load"
)

func main() {
	if err := run(); err != nil {
		fmt.Printf("%sfailed %v\n", load.Prefix, err)
	} else {
		fmt.Printf("%sdone\n", load.Prefix)
	}
	drain()
	// With reboot=t on the command line: a triple fault, which ends the machine.
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART); err != nil {
		fmt.Printf("%sfailed reboot: %v\n", load.Prefix, err)
	}
}

// drain waits until the console has sent what was printed: the kernel would
// restart with the rest still in the terminal's buffer.
func drain() {
	const afterOutput = 1 // TCSBRK with an argument other than 0 is tcdrain (tty_ioctl(4))
	if err := unix.IoctlSetInt(1, unix.TCSBRK, afterOutput); err != nil {
		fmt.Printf("%sfailed drain: %v\n", load.Prefix, err)
	}
}

func run() error {
	jobs, err := jobs()
	if err != nil {
		return err
	}
	if err := enterImage(); err != nil {
		return err
	}
	if err := configureNetwork(); err != nil {
		return err
	}
	for _, j := range jobs {
		measure := fio
		if j.Kind == load.Iperf {
			measure = iperf
		}
		r, err := measure(j)
		if err != nil {
			return fmt.Errorf("%s: %w", j, err)
		}
		line, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("%s: %w", j, err)
		}
		fmt.Printf("%sresult %s\n", load.Prefix, line)
	}
	return nil
}

// jobs reads the kernel's command line.
func jobs() ([]load.Job, error) {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return nil, fmt.Errorf("mount /proc: %w", err)
	}
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, err
	}
	var jobs []load.Job
	for word := range strings.FieldsSeq(string(line)) {
		list, ok := strings.CutPrefix(word, load.Parameter+"=")
		if !ok {
			continue
		}
		for name := range strings.SplitSeq(list, ",") {
			j, err := load.ParseJob(name)
			if err != nil {
				return nil, err
			}
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}
