package api

import "time"

// SandboxRequest asks for a machine that lives until it is removed.
type SandboxRequest struct {
	Image           string `json:"image,omitempty" doc:"Image to start from, by its name in /v1/info; or name a snapshot" example:"python" maxLength:"64"`
	Snapshot        string `json:"snapshot,omitempty" doc:"Snapshot to start from: id, at least 6 digits of it, or name" maxLength:"256"`
	MemoryMiB       int64  `json:"memory_mib,omitempty" doc:"Memory of the machine, rounded up to a class; a snapshot has its own" minimum:"1"`
	VCPUs           int    `json:"vcpus,omitempty" doc:"vCPUs, rounded up to a class; a snapshot has its own" minimum:"1"`
	LifetimeSeconds int64  `json:"lifetime_seconds,omitempty" doc:"When it is removed by itself: an hour, unless said; a day at most" minimum:"1" maximum:"86400"`
	Policy          string `json:"policy,omitempty" doc:"When it is checkpointed by itself, after a cell or a program: never, every-step, every:N or when-changed[:PAGES]" maxLength:"64" example:"every:5"`
	Tracker         string `json:"tracker,omitempty" doc:"What finds the changed pages of its checkpoints, of those that this host has (/v1/info); the daemon chooses unless said" enum:"pagemap,dirty-log,dirty-log-kept,dirty-ring,uffd-wp,uffd-wp-async,full"`
	// Shell is for measurements. The sandbox's record tells what served it.
	Shell Shell `json:"shell,omitempty" doc:"For measurements: the best kind of shell that it may be made of, from generic over bound to rehearsed; a lesser one if none of the kind is ready. Without this: rehearsed" enum:"generic,bound,rehearsed"`
}

// SandboxState is where a sandbox is in its life.
type SandboxState string

// The states of a sandbox.
const (
	SandboxRunning SandboxState = "running"
	SandboxPaused  SandboxState = "paused" // in memory: no vCPU runs
	SandboxEnded   SandboxState = "ended"  // its machine is gone
)

// Sandbox is a machine that a tenant holds.
type Sandbox struct {
	ID         string       `json:"id"`
	State      SandboxState `json:"state" enum:"running,paused,ended"`
	Image      string       `json:"image,omitempty"`
	MemoryMiB  int64        `json:"memory_mib" doc:"Memory of the machine"`
	VCPUs      int          `json:"vcpus"`
	Origin     string       `json:"origin" doc:"Snapshot that it was made from"`
	Policy     string       `json:"policy" doc:"When it is checkpointed by itself"`
	Tracker    string       `json:"tracker,omitempty" doc:"What finds the changed pages of its checkpoints; absent where the daemon chooses"`
	Snapshot   string       `json:"snapshot" doc:"Snapshot that it is a continuation of: the last one that was made of it or that it was rolled back to"`
	Generation uint64       `json:"generation" doc:"Changes with every restore, fork and rollback"`
	Created    time.Time    `json:"created"`
	Expires    time.Time    `json:"expires"`
	Record     Record       `json:"record" doc:"What the last operation on it took"`
	Error      *Error       `json:"error,omitempty" doc:"Why it ended"`
	// NotEnforced is as in a job's result.
	NotEnforced []string `json:"not_enforced,omitempty" doc:"What this host does not enforce (development mode)"`
}

// SandboxList is a tenant's sandboxes, newest first.
type SandboxList struct {
	Sandboxes []Sandbox `json:"sandboxes"`
}

// CodeRequest runs one cell in a warm interpreter of the sandbox. Cells of one
// runtime share their variables.
type CodeRequest struct {
	Runtime        string `json:"runtime,omitempty" doc:"Which interpreter, where the image has several" enum:"python,node"`
	Source         string `json:"source" doc:"The cell" maxLength:"1048576"`
	TimeoutSeconds int64  `json:"timeout_seconds,omitempty" doc:"When the cell is interrupted: 5 minutes, unless said" minimum:"1" maximum:"86400"`
}

// ExecRequest runs one program in the sandbox, as the job's user in /workspace.
type ExecRequest struct {
	Argv           []string          `json:"argv" minItems:"1" maxItems:"1024"`
	Env            map[string]string `json:"env,omitempty" doc:"Environment added to the image's" maxProperties:"256"`
	TimeoutSeconds int64             `json:"timeout_seconds,omitempty" doc:"When the program is ended: 5 minutes, unless said" minimum:"1" maximum:"86400"`
}

// CellStatus is how a cell ended.
type CellStatus string

// The ends of a cell.
const (
	CellOK          CellStatus = "ok"
	CellError       CellStatus = "error"       // it raised or threw
	CellInterrupted CellStatus = "interrupted" // by its timeout, or because its caller went away
)

// RunResult is the last event of a cell or of a program in a sandbox.
type RunResult struct {
	Status    CellStatus `json:"status,omitempty" enum:"ok,error,interrupted" doc:"Of a cell: how it ended"`
	Value     string     `json:"value,omitempty" doc:"Of a cell: its last expression, as the interpreter shows it"`
	Cut       bool       `json:"cut,omitempty" doc:"The value was too long and is cut"`
	ErrorType string     `json:"error_type,omitempty" doc:"Of a cell: name of the exception; its traceback went to stderr"`
	ErrorText string     `json:"error_text,omitempty" doc:"Of a cell: message of the exception"`

	Exit *Exit `json:"exit,omitempty" doc:"Of a program, or of an interpreter that the cell ended: how it ended"`

	Error      *Error     `json:"error,omitempty" doc:"Why there is no other result"`
	Checkpoint *Record    `json:"checkpoint,omitempty" doc:"What the checkpoint took that the sandbox's policy had made afterwards"`
	DurationMS float64    `json:"duration_ms"`
	Usage      *Usage     `json:"usage,omitempty" doc:"Of a program"`
	Stdout     StreamInfo `json:"stdout"`
	Stderr     StreamInfo `json:"stderr"`
}

// RunAnswer is a cell's or program's output and result in one piece, for callers
// that do not accept text/event-stream.
type RunAnswer struct {
	Stdout OutputEvent `json:"stdout"`
	Stderr OutputEvent `json:"stderr"`
	Result RunResult   `json:"result"`
}

// CheckpointRequest saves a sandbox, which runs on.
type CheckpointRequest struct {
	Name      string            `json:"name,omitempty" doc:"Name to find it by; the newest of that name is meant" maxLength:"64" pattern:"^[A-Za-z0-9][A-Za-z0-9._-]*$"`
	Labels    map[string]string `json:"labels,omitempty" maxProperties:"32"`
	Tracker   string            `json:"tracker,omitempty" doc:"What finds the changed pages; the sandbox's own tracker unless said. One that follows writes begins with this checkpoint, which its record tells" enum:"pagemap,dirty-log,dirty-log-kept,dirty-ring,uffd-wp,uffd-wp-async,full"`
	CopyAhead *bool             `json:"copy_ahead,omitempty" doc:"Copy most pages before the pause; the daemon decides unless said"`
	Durable   bool              `json:"durable,omitempty" doc:"Answer only when it would survive a crash"`
}

// CheckpointAnswer is a new snapshot and what it took.
type CheckpointAnswer struct {
	Snapshot Snapshot `json:"snapshot"`
	Record   Record   `json:"record"`
}

// RollbackRequest puts a sandbox back, in place.
type RollbackRequest struct {
	Snapshot string `json:"snapshot,omitempty" doc:"Snapshot of this sandbox's history or another of its tree: id, at least 6 digits of it, or name; the sandbox's last, unless said" maxLength:"256"`
}

// ForkRequest makes sandboxes that start where this one is.
type ForkRequest struct {
	Count           int    `json:"count,omitempty" doc:"How many: one, unless said" minimum:"1" maximum:"256"`
	Snapshot        string `json:"snapshot,omitempty" doc:"Fork this snapshot instead of the sandbox as it is now" maxLength:"256"`
	LifetimeSeconds int64  `json:"lifetime_seconds,omitempty" doc:"Of the new sandboxes: an hour, unless said" minimum:"1" maximum:"86400"`
}

// ForkAnswer is the new sandboxes.
type ForkAnswer struct {
	Snapshot   string    `json:"snapshot" doc:"Snapshot that all start from"`
	Checkpoint *Record   `json:"checkpoint,omitempty" doc:"What making that snapshot took"`
	Sandboxes  []Sandbox `json:"sandboxes"`
	TotalMS    float64   `json:"total_ms" doc:"From the snapshot to the last acknowledged generation"`
}
