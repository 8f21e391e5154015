// Command ticker is the init of a guest whose state is saved and restored: it
// says which clock source the kernel uses and what reading it costs, then
// prints a line a second, from each processor in turn.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	runtime.LockOSThread()
	unix.Mount("sysfs", "/sys", "sysfs", 0, "")
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	fmt.Printf("clocksource %s, %d ns a reading\n", strings.TrimSpace(string(source)), readingCost())
	start := time.Now() // CLOCK_MONOTONIC, through the vDSO
	for n := 0; ; n++ {
		cpu := n % runtime.NumCPU()
		var set unix.CPUSet
		set.Set(cpu)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			fmt.Printf("affinity: %v\n", err)
		}
		fmt.Printf("tick %d cpu %d ms %d\n", n, cpu, time.Since(start).Milliseconds())
		time.Sleep(time.Second)
	}
}

// readingCost is the least of several means, in nanoseconds.
func readingCost() int64 {
	const readings = 20000
	best := time.Duration(1 << 62)
	for range 10 {
		begin := time.Now()
		for range readings {
			_ = time.Since(begin)
		}
		best = min(best, time.Since(begin))
	}
	return int64(best) / readings
}
