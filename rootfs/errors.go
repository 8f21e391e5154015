package rootfs

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that callers tell apart.
var (
	// ErrUnknownImage: the name is none of python, node, dual.
	ErrUnknownImage = errors.New("unknown image")
	// ErrNotRoot: making an image needs root (mmdebstrap, chroot, bind mounts).
	ErrNotRoot = errors.New("making an image needs root")
	// ErrTool: a program is missing and could not be installed.
	ErrTool = errors.New("program missing")
	// ErrPackage: a registry was reached but does not give a package of the lock.
	ErrPackage = errors.New("package cannot be had")
	// ErrDigest: a package's bytes do not have the lock's digest.
	ErrDigest = errors.New("package does not match the lock's digest")
	// ErrLockDrift: Debian serves other versions than the lock's and Options.Locked
	// is set. The error is a *DriftError.
	ErrLockDrift = errors.New("packages of Debian have moved on from the lock")
	// ErrLock: a lock file is malformed.
	ErrLock = errors.New("malformed lock")
	// ErrDamaged: an image in the cache is not as its manifest says.
	ErrDamaged = errors.New("image is damaged")
	// ErrScratchSize: the size of a scratch disk is out of range or uneven.
	ErrScratchSize = errors.New("scratch disk size not allowed")
	// ErrInit: the program for /init is missing, too big, or cannot run in the guest.
	ErrInit = errors.New("unusable init")
	// ErrModule: a kernel module is missing, too big, or not one for x86-64.
	ErrModule = errors.New("unusable kernel module")
)

// unreachedError: a registry does not answer at all; Debian's packages serve
// instead.
type unreachedError struct {
	source Source
	err    error
}

func (e *unreachedError) Error() string {
	return fmt.Sprintf("rootfs: registry %s not reached: %v", e.source, e.err)
}

func (e *unreachedError) Unwrap() error { return e.err }

// Drift is one Debian package whose version in the mirror is not the lock's.
type Drift struct {
	Package string `json:"package"`
	Locked  string `json:"locked,omitempty"` // version; empty: the lock does not name it
	Actual  string `json:"actual,omitempty"` // version; empty: no longer installed
	// SHA256 is true when the versions agree and the digests do not: a mirror that
	// serves other bytes under the same version.
	SHA256 bool `json:"sha256,omitempty"`
}

func (d Drift) String() string {
	switch {
	case d.SHA256:
		return fmt.Sprintf("%s %s (other digest)", d.Package, d.Actual)
	case d.Locked == "":
		return fmt.Sprintf("%s %s (not in the lock)", d.Package, d.Actual)
	case d.Actual == "":
		return fmt.Sprintf("%s %s (gone)", d.Package, d.Locked)
	}
	return fmt.Sprintf("%s %s → %s", d.Package, d.Locked, d.Actual)
}

// DriftError names every package that moved on from the lock.
type DriftError struct{ Drift []Drift }

func (e *DriftError) Error() string {
	return fmt.Sprintf("rootfs: %v: %s (remedy: `thaw image lock`, or build without THAW_IMAGE_LOCKED=1)",
		ErrLockDrift, driftList(e.Drift))
}

// Unwrap makes errors.Is(err, ErrLockDrift) true.
func (e *DriftError) Unwrap() error { return ErrLockDrift }

func driftList(drift []Drift) string {
	names := make([]string, len(drift))
	for i, d := range drift {
		names[i] = d.String()
	}
	return strings.Join(names, ", ")
}
