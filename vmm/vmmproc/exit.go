package vmmproc

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"thaw/vmm/vmmproto"
)

// Reason says how a machine ended.
type Reason string

// Reasons that the VMM reported.
const (
	Poweroff    = Reason(vmmproto.Poweroff)
	Reset       = Reason(vmmproto.Reset)
	GuestPanic  = Reason(vmmproto.Panic)
	TripleFault = Reason(vmmproto.TripleFault)
	Stopped     = Reason(vmmproto.Stopped)  // by Stop
	Internal    = Reason(vmmproto.Internal) // an error of the VMM
)

// Reasons that this package found.
const (
	Killed           Reason = "killed"            // by Kill, Close, or the context of Start
	Hung             Reason = "hung"              // no answer to a ping; killed
	Crashed          Reason = "crashed"           // ended by itself: a Go panic, or an exit code without a report
	Signalled        Reason = "signalled"         // by a signal that the daemon did not send, such as the OOM killer's
	SeccompViolation Reason = "seccomp_violation" // made a system call that the jail does not allow (SIGSYS)
	ProtocolError    Reason = "protocol_error"    // sent something that no thaw-vmm sends; killed
	StartTimeout     Reason = "start_timeout"     // no machine in time; killed
	StartFailed      Reason = "start_failed"      // the VMM reported that there will be no machine
)

// Exit is the end of a process. Texts come from a process that may have been taken over: they are bounded and
// without control characters, except for Console, which is the guest's own bytes.
type Exit struct {
	Reason  Reason
	Detail  string
	Console []byte         // last bytes of the guest's console that the daemon got
	Signal  syscall.Signal // that ended the process, 0 for none
	Code    int            // exit code, -1 after a signal
	Stderr  string         // tail of what the VMM wrote there, such as a Go panic
	CPU     time.Duration  // user and system time
	MaxRSS  int64          // bytes, with what it touched of the guest's memory
}

func (e Exit) String() string {
	if e.Detail == "" {
		return string(e.Reason)
	}
	return string(e.Reason) + ": " + e.Detail
}

// StartError is a machine that never ran.
type StartError struct {
	Stage string // "jail" or "machine" where the VMM said so, else empty
	Exit  Exit
}

func (e *StartError) Error() string {
	if e.Stage != "" {
		return fmt.Sprintf("vmmproc: start: %s: %s", e.Stage, e.Exit)
	}
	return fmt.Sprintf("vmmproc: start: %s", e.Exit)
}

// verdict is what was found out about the end before the process was reaped.
type verdict struct {
	reason  Reason
	stage   string
	detail  string
	console []byte
}

// judge makes the Exit of a reaped process. v is nil when nothing was known before.
func judge(v *verdict, status syscall.WaitStatus, usage *syscall.Rusage, stderr string) Exit {
	e := Exit{Code: -1, Stderr: stderr}
	if usage != nil {
		e.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
		e.MaxRSS = usage.Maxrss << 10
	}
	if status.Signaled() {
		e.Signal = status.Signal()
	} else {
		e.Code = status.ExitStatus()
	}
	switch {
	case v != nil:
		e.Reason, e.Detail, e.Console = v.reason, v.detail, v.console
	case e.Signal == unix.SIGSYS:
		e.Reason, e.Detail = SeccompViolation, "a system call that the jail does not allow"
	case e.Signal == unix.SIGKILL:
		e.Reason, e.Detail = Signalled, "SIGKILL that the daemon did not send (out of memory, or an operator)"
	case e.Signal != 0:
		e.Reason, e.Detail = Signalled, unix.SignalName(e.Signal)
	default:
		e.Reason, e.Detail = Crashed, fmt.Sprintf("exit code %d without a report", e.Code)
		if line := crashLine(stderr); line != "" {
			e.Detail = line
		}
	}
	return e
}

// crashLine finds the line that says most: the one of a Go crash, else the last one.
func crashLine(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	for _, line := range lines {
		for _, prefix := range []string{"panic: ", "fatal error: ", "runtime: failed to create new OS thread"} {
			if strings.HasPrefix(line, prefix) {
				return line
			}
		}
	}
	return lines[len(lines)-1]
}
