package fleet

import (
	"thaw/snapshot/store"
)

// RestoreSpec says what machine is wanted.
type RestoreSpec struct {
	MachineID string // in records; empty: made up
	Snapshot  string // template or checkpoint
	Hostname  string // empty: "thaw"
}

// CheckpointSpec says what checkpoint is wanted.
type CheckpointSpec struct {
	Tenant    string
	Name      string
	Labels    map[string]string
	Tracker   string // empty: pagemap
	CopyAhead *bool  // nil: when much has changed
}

// Checkpoint is a snapshot that is consistent: the machine can be restored to it,
// in this daemon's life. It is durable a little later.
type Checkpoint struct {
	ID     string
	Record Record

	durable chan struct{} // closed when manifest or err is set
	stored  *store.Manifest
	err     error
}
