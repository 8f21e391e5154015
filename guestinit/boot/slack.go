package boot

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// timerSlack is how late a sleep of the agent's may end. The watchman of Go's runtime
// (sysmon) sleeps for 20 µs at a time for as long as goroutines run: a third of what a
// restored guest does until its generation is acknowledged was that. What the agent itself
// waits for by the clock is far longer, and jobs get their own slack (launch).
const timerSlack = 2 * time.Millisecond

// setTimerSlack sets it for every thread that there is; later ones inherit it.
func setTimerSlack() error {
	tasks, err := filepath.Glob("/proc/self/task/*")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		path := filepath.Join("/proc", filepath.Base(task), "timerslack_ns")
		err := writeSetting(path, strconv.FormatInt(timerSlack.Nanoseconds(), 10))
		if err != nil && !errors.Is(err, unix.ESRCH) { // it ended meanwhile
			return fmt.Errorf("set %s: %w", path, err)
		}
	}
	return nil
}
