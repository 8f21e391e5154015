package freemem

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// Size returns how much memory the machine has, and how much of it programs can get, in
// bytes.
func Size() (total, available int64, err error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0, fmt.Errorf("freemem: read memory size: %w", err)
	}
	for line := range bytes.Lines(raw) {
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(string(f[1]), 10, 64)
		switch string(f[0]) {
		case "MemTotal:":
			total = kib << 10
		case "MemAvailable:":
			available = kib << 10
		}
	}
	return total, available, nil
}
