// Package store keeps snapshots in a folder, one directory each. Below its root:
//
//	lock                       flock of the daemon that has the store open
//	snapshots/<id>/            a snapshot, complete
//	    manifest.json          what it is and which files it has, with digests
//	    state                  the machine's state, as the VMM wrote it (package format)
//	    index                  where each page is, over the whole chain (package pageindex)
//	    memory, memory.sum     the pages it adds, and their digests (package layer)
//	    disk.<id>, disk.<id>.sum
//	work/<id>/                 being written, or being removed
//	work/plan-<id>/            several snapshots that come or go together (package plan)
//
// A snapshot appears by one rename and disappears by one: a crash at any instant
// leaves the old or the new state.
//
//	Begin ─▶ work/<id> ─ files, each fsynced ─▶ rename ─▶ snapshots/<id> ─▶ rename ─▶ work/<id> ─▶ gone
//	              │                               ▲  Commit                  ▲  Delete
//	              └─ crash, Abort: Open removes   └─ parent fsynced          └─ parent fsynced
//
// A template has all of a machine's memory. A checkpoint has what changed since its
// parent, and a list of the layers below. Files in the store are hostile until
// they were verified once in this daemon's life.
package store

import (
	"errors"

	"thaw/snapshot/archive"
	"thaw/snapshot/durable"
	"thaw/snapshot/layer"
	"thaw/snapshot/manifest"
)

var (
	// ErrNotFound says that there is no snapshot of this id.
	ErrNotFound = errors.New("no such snapshot")
	// ErrParentMissing says that a snapshot's parent, or a layer of it, is not in the store.
	ErrParentMissing = errors.New("parent of the snapshot is missing")
	// ErrCycle says that a snapshot is its own ancestor.
	ErrCycle = manifest.ErrCycle
	// ErrDamaged says that a file of a snapshot is not what the manifest says, or
	// the manifest is malformed.
	ErrDamaged = layer.ErrDamaged
	// ErrIncompatible says that a snapshot cannot run here; see Incompatible.
	ErrIncompatible = manifest.ErrIncompatible
	// ErrInUse says that a machine holds a lease of a snapshot, or that it is pinned.
	ErrInUse = errors.New("snapshot is in use")
	// ErrChildren says that other snapshots need this one.
	ErrChildren = errors.New("snapshot has children")
	// ErrNoSpace says that the file system, or the store's share of it, is full.
	ErrNoSpace = durable.ErrNoSpace
	// ErrLocked says that another process has the store open.
	ErrLocked = durable.ErrLocked
	// ErrArchive says that an archive is malformed or breaks a bound.
	ErrArchive = archive.ErrArchive
	// ErrInvalid says that a request makes no sense: a bad name, a checkpoint
	// without a parent, a delta that is not one.
	ErrInvalid = manifest.ErrInvalid
)
