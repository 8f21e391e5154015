package store

import (
	"thaw/snapshot/manifest"
)

// What a snapshot is said to be; see package manifest.
type (
	Manifest     = manifest.Manifest
	Kind         = manifest.Kind
	Machine      = manifest.Machine
	File         = manifest.File
	Ref          = manifest.Ref
	Disk         = manifest.Disk
	Record       = manifest.Record
	Fingerprint  = manifest.Fingerprint
	Incompatible = manifest.Incompatible
)

// Kinds of snapshots.
const (
	Template   = manifest.Template
	Checkpoint = manifest.Checkpoint
)

// Format is the version of state files that this program writes.
func Format() string { return manifest.Format() }
