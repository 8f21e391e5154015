// Package proc reads what the kernel tells of processes.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// Still reports whether a process that stands still, and waits for a message when it
// goes on, can run nothing of its own before one comes: it has one thread, nobody traces it,
// and it catches no signal but SIGURG, by which interpreters are told to renew their
// generators. What cannot be read is not still.
func Still(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && still(status)
}

// still judges the text of a status file.
func still(status []byte) bool {
	threads, err := strconv.ParseUint(field(status, "Threads"), 10, 32)
	if err != nil || threads != 1 {
		return false
	}
	if field(status, "TracerPid") != "0" {
		return false
	}
	caught, err := strconv.ParseUint(field(status, "SigCgt"), 16, 64)
	return err == nil && caught&^(1<<(syscall.SIGURG-1)) == 0
}

// field returns the value of the line "name:\tvalue".
func field(status []byte, name string) string {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(name+":")); ok {
			return string(bytes.TrimSpace(rest))
		}
	}
	return ""
}

// Resident returns the memory in bytes that a process holds, or 0.
func Resident(pid int) int64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(raw), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
