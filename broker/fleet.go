package broker

import (
	"context"
	"io"

	"thaw/api"
	"thaw/broker/catalogue"
	"thaw/broker/steps"
)

// Class is the size of a machine that there are templates for.
type Class struct {
	MemoryMiB int64
	VCPUs     int
}

// Fleet makes machines from snapshots. Its errors are *api.Error where the code says
// more than internal; after an error nothing is left behind.
type Fleet interface {
	// Classes are the sizes of templates, in the order of memory, then of vCPUs.
	Classes() []Class
	// DiskBytes is the size of a template's writable disk.
	DiskBytes() int64
	// Template finds the template of an image, or makes it, which takes seconds.
	Template(ctx context.Context, image string, c Class) (snapshot string, err error)
	// Restore makes a machine whose guest has acknowledged a generation of its own.
	Restore(ctx context.Context, spec RestoreSpec) (WarmMachine, error)
	// Fork is Restore of several at a time: all of them or none.
	Fork(ctx context.Context, snapshot string, specs []RestoreSpec) ([]WarmMachine, error)
	Snapshots() catalogue.Store
	// Shells counts the shells that wait, in a fixed order.
	Shells() []api.ShellCount
	Trackers() []api.Tracker
}

// RestoreSpec says what machine to make of what.
type RestoreSpec struct {
	ID       string // of the machine; a file name and host name
	Tenant   string // owns the snapshots that are made of the machine
	Snapshot string
	Shell    api.Shell // the best kind that is to serve it; empty: the best there is
	Job      string    // what it is for: one job of this interpreter; empty: not known
	Tracker  string    // of its checkpoints; empty: the fleet's choice
}

// WarmMachine is a machine that was made from a snapshot.
type WarmMachine interface {
	Machine
	// Record is that of the restore, or of the last rollback.
	Record() api.Record
	// Code runs a cell in the warm interpreter of a runtime, and streams its output to
	// the writers until it returns. When ctx ends the cell is interrupted.
	Code(ctx context.Context, c Cell, stdout, stderr io.Writer) (CellEnd, error)
	// Checkpoint saves the machine, which is as running or paused afterwards as before.
	// A second call waits for the first.
	Checkpoint(ctx context.Context, spec CheckpointSpec) (catalogue.Made, error)
	// Changed counts what differs from when it was last restored, rolled back or saved.
	Changed(ctx context.Context) (steps.Change, error)
	// Rollback puts the machine back in place. Everything that was connected to its
	// guest fails. After an error the machine may have ended.
	Rollback(ctx context.Context, snapshot string) (api.Record, error)
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// Cell is a piece of code for a warm interpreter.
type Cell struct {
	Runtime string
	Source  string
}

// CellEnd is how a cell ended, in the guest's words.
type CellEnd struct {
	Status               api.CellStatus
	Value                string
	Cut                  bool
	ErrorType, ErrorText string
	Exit                 *api.Exit // the cell ended the interpreter
	// StdoutDropped and StderrDropped are bytes that the guest itself left out.
	StdoutDropped, StderrDropped int64
}

// CheckpointSpec says how to save a machine.
type CheckpointSpec struct {
	Name      string
	Labels    map[string]string
	Tracker   string // empty: the machine's own
	CopyAhead *bool  // nil: the fleet's choice
}
