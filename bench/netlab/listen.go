package netlab

import (
	"fmt"
	"os"
	"strings"
)

// listens reports whether there is a listening TCP socket in the network
// namespace of a process (proc(5), /proc/net/tcp: state 0A).
func listens(pid int) bool {
	table, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(table)) {
		if f := strings.Fields(line); len(f) > 3 && f[3] == "0A" {
			return true
		}
	}
	return false
}
