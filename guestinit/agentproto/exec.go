package agentproto

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds of an ExecRequest. Argv and Env must fit into one frame as well.
const (
	MaxArgs   = 4096
	MaxEnv    = 2048
	MaxPath   = 4096
	DefaultID = 10001 // user and group of a job that names none
	// MaxOutputCap bounds StdoutCap and StderrCap: the agent keeps up to half
	// of a cap in memory as the tail.
	MaxOutputCap = 64 << 20
	// StdinWindow is the standard input in bytes that may be in flight before
	// the first FrameStdinCredit; the agent buffers no more than that.
	StdinWindow = 256 << 10
	// DefaultGrace is the time between SIGTERM and the kill of an exec.
	DefaultGrace = 2 * time.Second
	// MaxGrace bounds ExecRequest.Grace.
	MaxGrace = time.Minute
)

// ExecRequest asks for one program to be run as C2 says: non-root, in its own
// cgroup, with no capability and only the environment named here (and PATH,
// HOME, LANG and GLIBC_TUNABLES where it names none).
type ExecRequest struct {
	Argv []string `cbor:"1,keyasint"` // Argv[0] without a slash is looked up in PATH
	Env  []string `cbor:"2,keyasint,omitempty"`
	Cwd  string   `cbor:"3,keyasint,omitempty"` // absolute; "" is /workspace
	UID  uint32   `cbor:"4,keyasint,omitempty"` // 0 is DefaultID: nothing runs as root
	GID  uint32   `cbor:"5,keyasint,omitempty"` // 0 is DefaultID

	Limits Limits `cbor:"6,keyasint"`

	// StdoutCap keeps the first and the last half of so many bytes; what is
	// dropped between them is counted. 0 is no cap: then a host that does not
	// read blocks the job.
	StdoutCap int64 `cbor:"7,keyasint,omitempty"`
	StderrCap int64 `cbor:"8,keyasint,omitempty"`

	Timeout time.Duration `cbor:"9,keyasint,omitempty"`  // wall clock; 0 is none
	Grace   time.Duration `cbor:"10,keyasint,omitempty"` // 0 is DefaultGrace

	// Stdin says that FrameStdin frames follow; else it is /dev/null. The
	// client sets it.
	Stdin bool `cbor:"11,keyasint,omitempty"`
	// Persist keeps the exec when its connection is lost, as it is by a
	// restore of the machine: its output then waits in its pipes, and
	// FrameAttach takes it over. Else it dies with its connection.
	Persist bool `cbor:"12,keyasint,omitempty"`
}

// Limits of one exec. Zero means no limit of its own for the cgroup's values
// and the agent's default for the rlimits.
type Limits struct {
	MemoryBytes       int64 `cbor:"1,keyasint,omitempty"` // memory.max, no swap
	Pids              int64 `cbor:"2,keyasint,omitempty"` // pids.max
	CPUMilli          int64 `cbor:"3,keyasint,omitempty"` // cpu.max in thousandths of a CPU
	CPUSeconds        int64 `cbor:"4,keyasint,omitempty"` // RLIMIT_CPU for each process, and the cgroup's sum
	FileSizeBytes     int64 `cbor:"5,keyasint,omitempty"` // RLIMIT_FSIZE
	OpenFiles         int64 `cbor:"6,keyasint,omitempty"` // RLIMIT_NOFILE
	StackBytes        int64 `cbor:"7,keyasint,omitempty"` // RLIMIT_STACK
	AddressSpaceBytes int64 `cbor:"8,keyasint,omitempty"` // RLIMIT_AS
	Processes         int64 `cbor:"9,keyasint,omitempty"` // RLIMIT_NPROC, for all execs of the user
}

// Validate checks every bound.
func (r *ExecRequest) Validate() error {
	switch {
	case len(r.Argv) == 0 || r.Argv[0] == "":
		return errors.New("argv is empty")
	case len(r.Argv) > MaxArgs:
		return fmt.Errorf("argv has %d entries, more than %d", len(r.Argv), MaxArgs)
	case len(r.Env) > MaxEnv:
		return fmt.Errorf("env has %d entries, more than %d", len(r.Env), MaxEnv)
	case len(r.Cwd) > MaxPath:
		return fmt.Errorf("cwd has %d bytes, more than %d", len(r.Cwd), MaxPath)
	case r.Cwd != "" && !strings.HasPrefix(r.Cwd, "/"):
		return errors.New("cwd is not absolute")
	case strings.Contains(r.Cwd, "\x00"):
		return errors.New("cwd holds a NUL byte")
	case r.StdoutCap < 0 || r.StdoutCap > MaxOutputCap, r.StderrCap < 0 || r.StderrCap > MaxOutputCap:
		return fmt.Errorf("output cap is not within 0 to %d", int64(MaxOutputCap))
	case r.Timeout < 0:
		return errors.New("timeout is negative")
	case r.Grace < 0 || r.Grace > MaxGrace:
		return fmt.Errorf("grace is not within 0 to %v", MaxGrace)
	}
	for _, a := range r.Argv {
		if strings.Contains(a, "\x00") {
			return errors.New("argv holds a NUL byte")
		}
	}
	for _, e := range r.Env {
		if i := strings.IndexByte(e, '='); i <= 0 || strings.Contains(e, "\x00") {
			return errors.New("env entry is not of the form NAME=value")
		}
	}
	return r.Limits.validate()
}

func (l Limits) validate() error {
	for _, v := range []struct {
		name string
		val  int64
	}{
		{"memory", l.MemoryBytes}, {"pids", l.Pids}, {"cpu quota", l.CPUMilli}, {"cpu seconds", l.CPUSeconds},
		{"file size", l.FileSizeBytes}, {"open files", l.OpenFiles}, {"stack", l.StackBytes},
		{"address space", l.AddressSpaceBytes}, {"processes", l.Processes},
	} {
		if v.val < 0 {
			return fmt.Errorf("limit on %s is negative", v.name)
		}
	}
	// Below these the program cannot even be loaded, and would die with a
	// cause that explains nothing.
	if l.MemoryBytes != 0 && l.MemoryBytes < 1<<20 {
		return errors.New("limit on memory is below 1 MiB")
	}
	if l.CPUMilli != 0 && l.CPUMilli < 10 {
		return errors.New("limit on cpu quota is below 10 thousandths")
	}
	if l.OpenFiles != 0 && l.OpenFiles < 3 {
		return errors.New("limit on open files is below 3")
	}
	if l.StackBytes != 0 && l.StackBytes < 128<<10 {
		return errors.New("limit on stack is below 128 KiB")
	}
	return nil
}

// Started answers an ExecRequest whose program runs, and an AttachRequest.
type Started struct {
	PID    int32  `cbor:"1,keyasint"`
	ExecID uint64 `cbor:"2,keyasint"`
	// Skipped names what this guest cannot enforce (a kernel without a cgroup
	// controller); empty in Thaw's own guests.
	Skipped []string `cbor:"3,keyasint,omitempty"`

	// Of an exec that was attached to: the bytes of each stream that went
	// over its earlier connections before this one goes on. A host that got
	// fewer lost the difference with the connection; one that got more will
	// see the difference again.
	StdoutAt int64 `cbor:"4,keyasint,omitempty"`
	StderrAt int64 `cbor:"5,keyasint,omitempty"`
	// StdinAt is the number of bytes of standard input that the agent took.
	StdinAt int64 `cbor:"6,keyasint,omitempty"`
	// StdinOpen says that the job's standard input takes more.
	StdinOpen bool `cbor:"7,keyasint,omitempty"`
	// StdinCredit is the credit that an attached connection starts with; an
	// exec's first connection starts with StdinWindow.
	StdinCredit uint32 `cbor:"8,keyasint,omitempty"`

	// Cold says, in an answer to a RunRequest, why a fresh interpreter runs the
	// job; "" if the warm one does.
	Cold string `cbor:"9,keyasint,omitempty"`
}

// Validate checks the bounds of what a guest may claim.
func (s *Started) Validate() error {
	switch {
	case s.StdoutAt < 0 || s.StderrAt < 0 || s.StdinAt < 0:
		return errors.New("position in a stream is negative")
	case s.StdinCredit > StdinWindow:
		return fmt.Errorf("stdin credit of %d is over the window", s.StdinCredit)
	case len(s.Cold) > 256:
		return errors.New("reason of a cold start is too long")
	}
	return validSkipped(s.Skipped)
}

// AttachRequest takes over the streams of a persistent exec. The connection
// that had them, if there is one, is closed.
type AttachRequest struct {
	ExecID uint64 `cbor:"1,keyasint"`
}

func validSkipped(s []string) error {
	if len(s) > 32 {
		return fmt.Errorf("%d skipped limits", len(s))
	}
	for _, v := range s {
		if len(v) > 256 {
			return fmt.Errorf("name of a skipped limit has %d bytes", len(v))
		}
	}
	return nil
}

// Signal asks for a signal to the exec's process group.
type Signal struct {
	Number int32 `cbor:"1,keyasint"`
}

// Validate checks that the number is one of Linux's signals.
func (s *Signal) Validate() error {
	if s.Number < 1 || s.Number > 64 {
		return fmt.Errorf("signal %d does not exist", s.Number)
	}
	return nil
}
