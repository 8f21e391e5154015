// Package manifest describes a snapshot: what it is, which files and layers it is made
// of, with their digests, and what it depends on. It is the manifest.json in the
// snapshot's folder and in archives; docs/snapshot-format.md has its fields.
//
// Manifests are hostile until decoded: Decode knows every field, bounds every value,
// and lets no name out of the snapshot's folder.
package manifest

import (
	"errors"

	"thaw/snapshot/layer"
)

var (
	// ErrDamaged says that a manifest is malformed.
	ErrDamaged = layer.ErrDamaged
	// ErrInvalid says that a manifest to be written makes no sense.
	ErrInvalid = errors.New("invalid snapshot")
	// ErrCycle says that a snapshot is its own ancestor.
	ErrCycle = errors.New("snapshots are each other's parents")
	// ErrIncompatible says that a snapshot cannot run here; see Incompatible.
	ErrIncompatible = errors.New("snapshot of another kind of machine or program")
)

// Bounds.
const (
	MaxSize   = 4 << 20  // bytes of a manifest
	MaxIndex  = 16 << 20 // bytes of an index, or of another small file
	MaxLayers = 4096     // of memory, or of one disk
	MaxDisks  = 8
	MaxLabels = 64
	MaxText   = 256      // bytes of a name, a label, or another string
	MaxMemory = 64 << 30 // bytes
)
