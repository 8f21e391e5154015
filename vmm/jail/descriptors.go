package jail

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// FirstFile is the first descriptor number that [Bear] does not pass: 0 to 2 are the standard ones, 3 is the control
// socket.
const FirstFile = 4

// CloseInherited closes every descriptor from [FirstFile] on. There should be none: they would be leaks of the daemon.
//
// Preconditions: first thing in main, while the Go runtime has opened none of its own (it opens the poller's at the
// first use; with GOMAXPROCS in the environment it never reads its cgroup files again).
func CloseInherited() error {
	if err := unix.CloseRange(FirstFile, math.MaxUint32, 0); err != nil {
		return fmt.Errorf("jail: close inherited descriptors: %w", err)
	}
	return nil
}
