package api

import "time"

// JobRequest asks for one program run in a microVM of its own.
type JobRequest struct {
	Runtime     string            `json:"runtime" doc:"Image to run in, by its name in /v1/info" example:"python" maxLength:"64"`
	Network     string            `json:"network,omitempty" doc:"Network profile from the server's catalogue; empty is none" example:"none" maxLength:"64"`
	Script      string            `json:"script" doc:"Name of the input to run" example:"main.py" minLength:"1" maxLength:"255"`
	Args        []string          `json:"args,omitempty" doc:"Arguments after the script" maxItems:"1024"`
	Env         map[string]string `json:"env,omitempty" doc:"Environment added to the profile's" maxProperties:"256"`
	Inputs      []InputRef        `json:"inputs" doc:"Files placed in /workspace before the program starts" maxItems:"4096"`
	Limits      Limits            `json:"limits,omitempty" doc:"Omitted limits get the profile's defaults"`
	OutputTypes []string          `json:"output_types,omitempty" doc:"Allowed media types of artifacts, by content; empty allows all; text/* style wildcards" maxItems:"64" example:"[\"text/*\",\"image/png\"]"`
	Requester   string            `json:"requester,omitempty" doc:"Who or what asked, for the record" maxLength:"256"`
	Model       string            `json:"model,omitempty" doc:"Model that wrote the program, for the record" maxLength:"256"`
}

// InputRef places an uploaded input in the job's workspace.
type InputRef struct {
	Name  string `json:"name" doc:"Path below /workspace, with / between parts" example:"data/sales.csv" minLength:"1" maxLength:"1024"`
	Input string `json:"input" doc:"Handle from POST /v1/inputs" maxLength:"64"`
}

// Limits bounds a job. Zero means the default.
type Limits struct {
	WallSeconds    int64   `json:"wall_seconds,omitempty" doc:"Hard wall clock of the program, in seconds" minimum:"1"`
	MemoryMiB      int64   `json:"memory_mib,omitempty" doc:"Memory of the program, in MiB; the machine gets some more for its kernel" minimum:"1"`
	CPUCores       float64 `json:"cpu_cores,omitempty" doc:"CPU time per wall time; the machine has this many vCPUs, rounded up" exclusiveMinimum:"0"`
	Pids           int64   `json:"pids,omitempty" doc:"Processes and threads at one time" minimum:"1"`
	WorkspaceBytes int64   `json:"workspace_bytes,omitempty" doc:"Size of the writable disk, in bytes; rounded up to a size class" minimum:"1"`
	OutputBytes    int64   `json:"output_bytes,omitempty" doc:"Bytes of all artifacts together" minimum:"1"`
	OutputFiles    int64   `json:"output_files,omitempty" doc:"Number of artifacts" minimum:"1"`
	StdoutBytes    int64   `json:"stdout_bytes,omitempty" doc:"Bytes of each of stdout and stderr that are passed on; head and tail are kept" minimum:"1"`
}

// State is where a job is in its life. The daemon's lifecycle file draws the machine.
type State string

// The states, in order; the last four are final.
const (
	StateQueued        State = "queued"
	StateAdmitted      State = "admitted"
	StateMaterialising State = "materialising"
	StateRunning       State = "running"
	StateCollecting    State = "collecting"
	StateValidating    State = "validating"
	StateCleaning      State = "cleaning"
	StateDone          State = "done"
	StateFailed        State = "failed"
	StateCancelled     State = "cancelled"
	StateTimedOut      State = "timed_out"
)

// Final reports whether a job in this state changes no more.
func (s State) Final() bool {
	return s == StateDone || s == StateFailed || s == StateCancelled || s == StateTimedOut
}

// Job is a job as its tenant sees it.
type Job struct {
	ID        string      `json:"id"`
	State     State       `json:"state" enum:"queued,admitted,materialising,running,collecting,validating,cleaning,done,failed,cancelled,timed_out"`
	Runtime   string      `json:"runtime" doc:"Image it runs in"`
	Network   string      `json:"network"`
	Script    string      `json:"script"`
	Args      []string    `json:"args,omitempty"`
	Requester string      `json:"requester,omitempty"`
	Model     string      `json:"model,omitempty"`
	Limits    Limits      `json:"limits" doc:"As enforced: defaults filled in, sizes rounded up"`
	Created   time.Time   `json:"created"`
	History   []StateTime `json:"history" doc:"Each state the job has been in and when it entered it"`
	Result    *Result     `json:"result,omitempty" doc:"Present once the state is final"`
}

// StateTime says when a job entered a state.
type StateTime struct {
	State State     `json:"state"`
	At    time.Time `json:"at"`
}

// Result is what became of a job.
type Result struct {
	Exit          *Exit      `json:"exit,omitempty" doc:"How the program ended; absent when it never did"`
	Error         *Error     `json:"error,omitempty" doc:"Why the job is not done"`
	Usage         Usage      `json:"usage"`
	Stdout        StreamInfo `json:"stdout"`
	Stderr        StreamInfo `json:"stderr"`
	Artifacts     []Artifact `json:"artifacts" doc:"Empty in lists of jobs, which have only the numbers"`
	Rejected      []Rejected `json:"rejected,omitempty" doc:"The first output files that were not taken, and why; empty in lists of jobs"`
	ArtifactCount int        `json:"artifact_count" doc:"How many artifacts there are"`
	RejectedCount int        `json:"rejected_count" doc:"How many output files were not taken"`
	NotEnforced   []string   `json:"not_enforced,omitempty" doc:"What this host does not enforce (development mode)"`
	Start         *Start     `json:"start,omitempty" doc:"What the machine was made from"`
	Phases        []Phase    `json:"phases,omitempty" doc:"Time of each phase of the start"`
	CleanupOK     bool       `json:"cleanup_ok"`
	CleanupErr    string     `json:"cleanup_error,omitempty" doc:"What could not be cleaned up"`
}

// Start says what a job's machine was made from, and what ran the program.
type Start struct {
	Shell    Shell   `json:"shell" enum:"cold,generic,bound,rehearsed" doc:"cold: the machine was booted; else what served the restore"`
	Snapshot string  `json:"snapshot,omitempty" doc:"Template that it was restored from"`
	WhyCold  string  `json:"why_cold,omitempty" doc:"Why the machine was booted although the daemon uses templates"`
	Warm     bool    `json:"warm" doc:"The program ran in the interpreter that waited for it"`
	WhyFresh string  `json:"why_fresh,omitempty" doc:"Why the interpreter that waited could not run the program"`
	Record   *Record `json:"record,omitempty" doc:"What the restore took"`
}

// Exit is how the program ended, as told by the guest's kernel.
type Exit struct {
	Code   int    `json:"code" doc:"Exit code; 128 + signal when killed by one"`
	Signal int    `json:"signal,omitempty" doc:"Signal that ended the program"`
	Cause  string `json:"cause" doc:"exited, signal, oom, pids_exhausted, cpu_time, file_size, …" example:"exited"`
	Detail string `json:"detail,omitempty" doc:"What the guest's agent has to say about the cause"`
}

// Usage is what the program used, from the guest kernel's counters.
type Usage struct {
	WallMS          int64 `json:"wall_ms"`
	CPUUserMS       int64 `json:"cpu_user_ms"`
	CPUSystemMS     int64 `json:"cpu_system_ms"`
	PeakMemoryBytes int64 `json:"peak_memory_bytes"`
	DiskBytes       int64 `json:"disk_bytes"`
}

// StreamInfo counts one output stream.
type StreamInfo struct {
	Bytes   int64 `json:"bytes" doc:"Bytes passed on"`
	Dropped int64 `json:"dropped,omitempty" doc:"Bytes beyond the limit that were dropped"`
}

// Artifact is a collected output file.
type Artifact struct {
	Path      string `json:"path" doc:"Relative to /workspace/out"`
	Size      int64  `json:"size"`
	SHA256    string `json:"sha256"`
	MediaType string `json:"media_type" doc:"Found by content"`
	Attempt   int    `json:"attempt"`
}

// Rejected is an output file that was not taken.
type Rejected struct {
	Path   string `json:"path" doc:"Quoted where it holds unprintable bytes"`
	Reason string `json:"reason"`
}

// Phase is a timed part of a machine's start.
type Phase struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
}

// Input is an uploaded file.
type Input struct {
	Input  string `json:"input" doc:"Handle for job requests; valid for this tenant until it expires or the daemon restarts"`
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
}

// JobList is a tenant's jobs, newest first.
type JobList struct {
	Jobs []Job `json:"jobs"`
}

// Manifest is the artifacts of a job.
type Manifest struct {
	Job           string     `json:"job"`
	State         State      `json:"state"`
	Artifacts     []Artifact `json:"artifacts"`
	Rejected      []Rejected `json:"rejected,omitempty" doc:"The first output files that were not taken, and why"`
	RejectedCount int        `json:"rejected_count" doc:"How many output files were not taken"`
}
