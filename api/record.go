package api

import "time"

// Shell is what kind of waiting VMM process served a restore.
type Shell string

// The kinds, from the slowest to the fastest. ShellCold is none: the machine was booted.
const (
	ShellCold      Shell = "cold"
	ShellGeneric   Shell = "generic"   // any template
	ShellBound     Shell = "bound"     // this template was mapped ahead
	ShellRehearsed Shell = "rehearsed" // bound, run once and rolled back
)

// Record is what one operation on a machine took, as the daemon measured it; counts
// of pages (4096 bytes each) are the VMM's word. What an operation does not have is
// left out.
type Record struct {
	Op         string `json:"op" enum:"create,checkpoint,rollback,fork,pause,resume" doc:"The operation"`
	Machine    string `json:"machine,omitempty"`
	Snapshot   string `json:"snapshot,omitempty" doc:"Snapshot that was made, or that the machine was restored from"`
	Parent     string `json:"parent,omitempty" doc:"Parent of a snapshot that was made"`
	Generation uint64 `json:"generation,omitempty" doc:"Generation of the machine from now on"`
	Shell      Shell  `json:"shell,omitempty" enum:"cold,generic,bound,rehearsed" doc:"What served the restore"`

	TotalMS     float64 `json:"total_ms" doc:"The operation, until the guest had acknowledged its generation or, of a checkpoint, ran on"`
	AckMS       float64 `json:"ack_ms,omitempty" doc:"From the request to the acknowledged generation"`
	FreezeMS    float64 `json:"freeze_ms,omitempty" doc:"Until the guest's processes stood still"`
	PauseMS     float64 `json:"pause_ms,omitempty" doc:"While no vCPU ran"`
	CopyAheadMS float64 `json:"copy_ahead_ms,omitempty" doc:"Copying before the pause, while the guest ran"`
	Phases      []Phase `json:"phases,omitempty"`

	Tracker      string `json:"tracker,omitempty" doc:"What found the changed pages"`
	Candidates   int64  `json:"candidates,omitempty" doc:"Pages that were looked at"`
	Pages        int64  `json:"pages,omitempty" doc:"Pages stored"`
	ZeroPages    int64  `json:"zero_pages,omitempty" doc:"Pages that became zero"`
	SamePages    int64  `json:"same_pages,omitempty" doc:"Candidates that had not changed"`
	PrivatePages int64  `json:"private_pages,omitempty" doc:"Of a rollback: pages that the machine had made its own"`
	CopiedPages  int64  `json:"copied_pages,omitempty" doc:"Of a rollback: pages put back"`
	DiskBytes    int64  `json:"disk_bytes,omitempty" doc:"Written to disks since the parent"`
	Bytes        int64  `json:"bytes,omitempty" doc:"What a snapshot takes on the host's disk"`
	Depth        int    `json:"depth,omitempty" doc:"Checkpoints between a snapshot and its template"`
	PageFaults   int64  `json:"page_faults,omitempty"`

	Consistent *time.Time `json:"consistent,omitempty" doc:"The instant that a snapshot holds"`
	Durable    *time.Time `json:"durable,omitempty" doc:"When a snapshot would survive a crash; absent while it would not"`
}
