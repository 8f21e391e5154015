package broker

import (
	"context"
	"io"

	"golang.org/x/sys/unix"

	"thaw/api"
	"thaw/broker/collect"
)

// LaunchSpec says what machine a job needs.
type LaunchSpec struct {
	ID        string // of the machine; a file name
	Image     string // name of an image
	VCPUs     int
	MemoryMiB int64 // of the machine
	DiskBytes int64 // of the writable disk
}

// Launcher makes machines.
type Launcher interface {
	// Launch starts a machine and returns once its agent is ready. Until then the
	// error of a failed start is an *api.Error; nothing is left behind.
	Launch(ctx context.Context, spec LaunchSpec) (Machine, error)
	// Check says whether there is what a machine with an image boots from: the
	// *api.Error tells what is missing or unusable.
	Check(image string) error
	// Assets says what there is to boot from: the kernel, and the image of each name.
	Assets(images []string) (kernel api.Asset, byName map[string]api.Asset)
}

// Machine is a running microVM. All it says comes from a hostile guest or from
// the VMM process beside it.
type Machine interface {
	Agent() Agent
	// Ended is closed when the machine's process is gone; from then on Exit tells how.
	Ended() <-chan struct{}
	Exit() MachineExit
	// Phases are the timed parts of the start.
	Phases() []api.Phase
	// Close destroys the machine and gives back all that it held. The error names
	// what could not be given back.
	Close(ctx context.Context) error
}

// MachineExit is how a machine ended.
type MachineExit struct {
	Reason  ExitReason
	Detail  string
	Console string // last lines
}

// ExitReason is why a machine ended.
type ExitReason string

// The reasons that the broker tells apart.
const (
	ExitPoweroff ExitReason = "poweroff" // or reset: the guest ended itself in order
	ExitPanic    ExitReason = "panic"    // the guest kernel panicked or triple-faulted
	ExitKilled   ExitReason = "killed"   // thaw-vmm was killed by a signal from outside
	ExitFailed   ExitReason = "failed"   // thaw-vmm crashed, hung or gave up
)

// Agent is the guest's PID 1, seen through its protocol.
type Agent interface {
	// Put writes a file below /workspace, making parent directories.
	Put(ctx context.Context, name string, mode uint32, size int64, r io.Reader) error
	// Start runs a program and streams its output to the writers until Wait returns.
	Start(ctx context.Context, exec Exec, stdout, stderr io.Writer) (Process, error)
	// Outputs is the tree below /workspace/out.
	Outputs() collect.Tree
}

// Exec is a program to run in the guest as the job's user in /workspace.
type Exec struct {
	Argv []string
	// Runtime is the interpreter that Argv[0] is: a machine in which one waits may run
	// the rest of Argv in that one. Empty: Argv is run as it is.
	Runtime     string
	Env         []string
	MemoryBytes int64
	Pids        int64
	CPUMilli    int64
	OutputBytes int64 // of each stream; head and tail are kept
}

// Process is a started program.
type Process interface {
	Signal(sig unix.Signal) error
	// Wait returns when the program has ended and its output has been written.
	Wait() (ExitStatus, error)
}

// ExitStatus is how a program ended, in the guest's words.
type ExitStatus struct {
	Exit                         api.Exit
	Usage                        api.Usage
	StdoutDropped, StderrDropped int64
	NoOutputs                    bool   // the output directory is known to be empty
	Warm                         bool   // it ran in an interpreter that waited for it
	WhyFresh                     string // one waited, but could not run it
}
