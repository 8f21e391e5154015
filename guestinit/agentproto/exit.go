package agentproto

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// Cause says why an exec ended.
type Cause string

// The causes, in the order in which they win when several hold.
const (
	CauseCancelled     Cause = "cancelled"      // the host asked for its end
	CauseTimeout       Cause = "timeout"        // ExecRequest.Timeout ran out
	CauseOOM           Cause = "oom"            // memory.max: killed by the kernel, or by the agent when it starved there
	CauseCPUTime       Cause = "cpu_time"       // Limits.CPUSeconds ran out
	CauseFileSize      Cause = "file_size"      // a file grew to Limits.FileSizeBytes
	CausePidsExhausted Cause = "pids_exhausted" // failed, and a fork was refused by pids.max
	CauseDiskFull      Cause = "disk_full"      // failed, and the disk is full
	CauseSignal        Cause = "signal"         // killed by a signal that none of the above explains
	CauseExited        Cause = "exited"         // ended by itself, whatever the code
)

var causes = map[Cause]bool{
	CauseCancelled: true, CauseTimeout: true, CauseOOM: true, CauseCPUTime: true, CauseFileSize: true,
	CausePidsExhausted: true, CauseDiskFull: true, CauseSignal: true, CauseExited: true,
}

// ExitStatus tells how an exec ended and what it used.
type ExitStatus struct {
	Code   int32 `cbor:"1,keyasint"` // exit code, or -1 if killed by a signal
	Signal int32 `cbor:"2,keyasint,omitempty"`
	Cause  Cause `cbor:"3,keyasint"`

	Usage Usage `cbor:"4,keyasint"`

	StdoutBytes   int64 `cbor:"5,keyasint,omitempty"` // written by the job, kept or not
	StderrBytes   int64 `cbor:"6,keyasint,omitempty"`
	StdoutDropped int64 `cbor:"7,keyasint,omitempty"` // between head and tail
	StderrDropped int64 `cbor:"8,keyasint,omitempty"`

	// Observations, true whatever the cause.
	DiskFull bool `cbor:"9,keyasint,omitempty"`  // no space or no inode left on /workspace or /tmp at the end
	PidsHit  bool `cbor:"10,keyasint,omitempty"` // a fork was refused by pids.max
	// Killed says that processes outlived the main one and were killed.
	Killed bool `cbor:"11,keyasint,omitempty"`
	// OutputHeld says that a process outside the exec still held an output
	// pipe, which was closed unread.
	OutputHeld bool `cbor:"12,keyasint,omitempty"`
	CoreDumped bool `cbor:"13,keyasint,omitempty"`
	// Detail says more of the cause to people: one line, or nothing.
	Detail string `cbor:"14,keyasint,omitempty"`

	// OutputLost says that output of a persistent exec was dropped, because
	// nobody fetched it and too many others had ended since.
	OutputLost bool `cbor:"15,keyasint,omitempty"`

	// NoOutputs says that RunRequest.Outputs is an empty directory.
	NoOutputs bool `cbor:"16,keyasint,omitempty"`
}

// MaxDetail bounds ExitStatus.Detail, in bytes.
const MaxDetail = 256

// Validate checks the bounds of what a guest may claim.
func (e *ExitStatus) Validate() error {
	switch {
	case !causes[e.Cause]:
		return fmt.Errorf("cause %.32q is unknown", string(e.Cause))
	case e.Code < -1 || e.Code > 255:
		return fmt.Errorf("exit code %d is out of range", e.Code)
	case e.Signal < 0 || e.Signal > 64:
		return fmt.Errorf("signal %d does not exist", e.Signal)
	case e.StdoutBytes < 0, e.StderrBytes < 0, e.StdoutDropped < 0, e.StderrDropped < 0:
		return errors.New("byte count is negative")
	case e.StdoutDropped > e.StdoutBytes, e.StderrDropped > e.StderrBytes:
		return errors.New("more bytes dropped than written")
	case len(e.Detail) > MaxDetail, strings.ContainsFunc(e.Detail, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("detail is no short line of text")
	}
	return e.Usage.Validate()
}

// Usage comes from the kernel's own counters: of one exec's cgroup, or of all
// jobs of the machine since its boot.
type Usage struct {
	CPU          time.Duration `cbor:"1,keyasint,omitempty"`
	CPUUser      time.Duration `cbor:"2,keyasint,omitempty"`
	CPUSystem    time.Duration `cbor:"3,keyasint,omitempty"`
	Wall         time.Duration `cbor:"4,keyasint,omitempty"`
	MemoryPeak   int64         `cbor:"5,keyasint,omitempty"` // bytes; 0 where the kernel does not tell
	MemoryNow    int64         `cbor:"6,keyasint,omitempty"`
	OOMKills     int64         `cbor:"7,keyasint,omitempty"`
	PidsPeak     int64         `cbor:"8,keyasint,omitempty"`
	PidsNow      int64         `cbor:"9,keyasint,omitempty"`
	DiskTotal    int64         `cbor:"10,keyasint,omitempty"` // of /workspace, in bytes
	DiskUsed     int64         `cbor:"11,keyasint,omitempty"`
	DiskFree     int64         `cbor:"12,keyasint,omitempty"`
	MemTotal     int64         `cbor:"13,keyasint,omitempty"` // machine only, bytes
	MemAvailable int64         `cbor:"14,keyasint,omitempty"` // machine only, bytes
	Execs        int64         `cbor:"15,keyasint,omitempty"` // machine only: running now
}

// Validate checks that no counter is negative.
func (u *Usage) Validate() error {
	for _, v := range []int64{
		int64(u.CPU), int64(u.CPUUser), int64(u.CPUSystem), int64(u.Wall), u.MemoryPeak, u.MemoryNow, u.OOMKills,
		u.PidsPeak, u.PidsNow, u.DiskTotal, u.DiskUsed, u.DiskFree, u.MemTotal, u.MemAvailable, u.Execs,
	} {
		if v < 0 {
			return errors.New("usage counter is negative")
		}
	}
	return nil
}
