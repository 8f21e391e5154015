// Package layer keeps the bytes that one snapshot adds, of memory or of a disk, in
// a file that is digested once and never changes.
//
//	running machine          stored                         in use
//	memfd or file ──Copy──▶ file + Sum (digest per MiB) ──Load──▶ sealed memfd (memory)
//	                                  │
//	                                  └──Verify──▶ file, opened for reading (disk)
//
// Copy makes the digests from the bytes it writes, not from the source's: a VMM
// that still has the source open cannot make them differ. Load and Verify check
// chunk by chunk, so that nobody maps a byte that was not verified. Both happen once
// in a daemon's life, not at each restore (requirement B7).
//
// CopySmall compresses chunks of memory that Load decompresses: what is stored is small,
// what is in use is as it was.
//
// Zero pages are holes in every layer. A digest is over what a file reads as, so a
// copy without holes, or with others, is the same layer.
package layer

import (
	"errors"
)

// ErrDamaged says that a layer is not what its digests say: changed, cut short,
// or with a malformed list of digests.
var ErrDamaged = errors.New("damaged layer")

// ChunkSize is how many bytes one digest covers.
const ChunkSize = 1 << 20

// pageSize is the unit of holes.
const pageSize = 4096

// MaxSize bounds a layer, in bytes.
const MaxSize = 1 << 40
