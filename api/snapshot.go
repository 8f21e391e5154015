package api

import "time"

// SnapshotKind says what a snapshot is.
type SnapshotKind string

// Kinds of snapshots.
const (
	KindTemplate   SnapshotKind = "template"   // all of a machine; the daemon's own
	KindCheckpoint SnapshotKind = "checkpoint" // what changed since its parent
)

// SnapshotState says what a snapshot can be used for.
type SnapshotState string

// The states of a snapshot.
const (
	SnapshotConsistent SnapshotState = "consistent" // usable; a crash of the host would lose it
	SnapshotDurable    SnapshotState = "durable"
	SnapshotUnusable   SnapshotState = "unusable" // see its error
)

// Snapshot is a saved machine.
type Snapshot struct {
	ID         string            `json:"id"`
	Kind       SnapshotKind      `json:"kind" enum:"template,checkpoint"`
	State      SnapshotState     `json:"state" enum:"consistent,durable,unusable"`
	Parent     string            `json:"parent,omitempty"`
	Name       string            `json:"name,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Pinned     bool              `json:"pinned,omitempty" doc:"Collection of garbage keeps it"`
	Image      string            `json:"image,omitempty"`
	MemoryMiB  int64             `json:"memory_mib"`
	VCPUs      int               `json:"vcpus"`
	Created    time.Time         `json:"created"`
	Bytes      int64             `json:"bytes" doc:"What it takes on the host's disk by itself"`
	Depth      int               `json:"depth" doc:"Checkpoints between it and its template"`
	Children   int               `json:"children" doc:"Snapshots of yours that need it"`
	Sandboxes  []string          `json:"sandboxes,omitempty" doc:"Sandboxes of yours that continue it"`
	Generation uint64            `json:"generation,omitempty" doc:"Of the machine when it was saved"`
	Record     *Record           `json:"record,omitempty" doc:"What making it took"`
	Error      *Error            `json:"error,omitempty" doc:"Why it cannot be used"`
}

// SnapshotList is a tenant's snapshots, newest first.
type SnapshotList struct {
	Snapshots []Snapshot `json:"snapshots"`
}

// SnapshotNode is a snapshot and its place in the tree.
type SnapshotNode struct {
	Level    int      `json:"level" doc:"0 for a root; a child follows its parent, one level deeper"`
	Snapshot Snapshot `json:"snapshot"`
}

// SnapshotTree is a tenant's snapshots and the templates below them, each parent
// before its children, older siblings first.
type SnapshotTree struct {
	Nodes []SnapshotNode `json:"nodes"`
}

// CollectRequest asks for room.
type CollectRequest struct {
	DryRun bool `json:"dry_run,omitempty" doc:"Say what would go, and remove nothing"`
	// KeepBytes is a bound for the caller's own snapshots; nil is their quota, 0 leaves none
	// that nothing needs.
	KeepBytes *int64 `json:"keep_bytes,omitempty" doc:"Remove the least recently used of your checkpoints that nothing needs until no more than this is left; your quota, unless said" minimum:"0"`
}

// Removed lists snapshots that were removed.
type Removed struct {
	Snapshots []string `json:"snapshots"`
	Bytes     int64    `json:"bytes" doc:"Given back to the host's disk"`
}
