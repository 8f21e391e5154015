// Package hot keeps the memory of snapshots that are in use in memfds, as many bytes
// as it is allowed to.
//
//	chain  T ◀─ 1 ◀─ 2 ◀─ … ◀─ 100
//	       │    └────── 64 ──────┘└─ 32 ─┘└ 4 ┘     groups of layers, merged
//	       ▼              ▼           ▼     ▼
//	     base         overlay     overlay overlay   sealed memfds, shared by every
//	                                                machine below the same layers
//
// A restore takes the base and at most a few overlays, whatever the depth. Layers are
// merged in groups whose lengths are the powers of two that the chain's length is
// made of: a chain that grows by one layer builds one new group, of one layer nine
// times in ten, and a layer is copied as often as a counter's bits carry: log₂ of the
// depth in all. One merged file for each checkpoint would copy all of it each time.
package hot

import (
	"errors"
)

// ErrTooLarge says that a file does not fit into the cache even when it is empty.
var ErrTooLarge = errors.New("memory of the snapshot is larger than the cache")
