package suite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// guestMapping is how the guest's memory is named in /proc/PID/smaps.
const guestMapping = "/memfd:thaw-guest"

// beyondGuest returns the resident memory of a VMM, less that of its guest, in
// MiB.
func beyondGuest(pid int) (float64, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, fmt.Errorf("suite: memory of thaw-vmm: %w", err)
	}
	defer f.Close()
	kib, err := residentKiB(f)
	if err != nil {
		return 0, err
	}
	return float64(kib) / 1024, nil
}

// residentKiB adds up the Rss lines of smaps, without those of guest memory
// (proc_pid_smaps(5)).
func residentKiB(smaps io.Reader) (kib int, err error) {
	guest, found := false, false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		line := lines.Text()
		name, rest, _ := strings.Cut(line, " ")
		switch {
		case !strings.HasSuffix(name, ":"): // a mapping's first line
			guest = strings.Contains(rest, guestMapping)
			found = found || guest
		case name == "Rss:" && !guest:
			var n int
			if _, err := fmt.Sscanf(rest, "%d kB", &n); err != nil {
				return 0, fmt.Errorf("suite: smaps line %q: %w", line, err)
			}
			kib += n
		}
	}
	if err := lines.Err(); err != nil {
		return 0, fmt.Errorf("suite: read smaps: %w", err)
	}
	if !found {
		return 0, errors.New("suite: smaps has no mapping of guest memory")
	}
	return kib, nil
}

// processMemory returns a field of /proc/PID/status that is a size, in MiB: VmRSS
// is what is resident now, VmHWM the most that ever was.
func processMemory(pid int, field string) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("suite: memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			var kib int
			if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
				return 0, fmt.Errorf("suite: memory of process %d: %w", pid, err)
			}
			return float64(kib) / 1024, nil
		}
	}
	return 0, fmt.Errorf("suite: process %d has no %s", pid, field)
}
