package agentproto

import (
	"errors"
	"fmt"
	"time"
)

// Bounds of checkpoint messages.
const (
	SeedSize      = 32
	MachineIDSize = 16
	// MaxHostname is the kernel's bound (HOST_NAME_MAX).
	MaxHostname = 64
	// MaxFreezeWait bounds FreezeRequest.Wait.
	MaxFreezeWait = time.Minute
	// DefaultFreezeWait is for a request that names none.
	DefaultFreezeWait = 2 * time.Second
)

// Wall clocks that a Generation may carry, in nanoseconds since 1970: a
// machine of another time is a bug of the host's.
const (
	minWall = 1_577_836_800_000_000_000 // 2020
	maxWall = 7_258_118_400_000_000_000 // 2200
)

// FreezeRequest stops every process of every exec. No exec starts until
// FrameThaw or FrameGeneration.
type FreezeRequest struct {
	// Wait is how long they may take to stop; 0 is DefaultFreezeWait. When it
	// is over they go on, and the answer is CodeFreezeTimeout.
	Wait time.Duration `cbor:"1,keyasint,omitempty"`
	// DropCaches writes the disks' data back and drops all cached files, so
	// that a template holds none of it. It may take seconds.
	DropCaches bool `cbor:"2,keyasint,omitempty"`
	// ReportFree puts the code of what runs on huge pages, brings free memory into
	// large pieces, reports those to the host where the kernel can do it at once, and
	// tells how much there is: the host then takes it by the balloon, and gives it back.
	ReportFree bool `cbor:"3,keyasint,omitempty"`
}

// Validate checks the bounds.
func (r *FreezeRequest) Validate() error {
	if r.Wait < 0 || r.Wait > MaxFreezeWait {
		return fmt.Errorf("wait is not within 0 to %v", MaxFreezeWait)
	}
	return nil
}

// FreezeResult answers a FreezeRequest.
type FreezeResult struct {
	Took time.Duration `cbor:"1,keyasint"` // until all stood still
	// Prepared is the time for dropping caches and reporting memory.
	Prepared time.Duration `cbor:"2,keyasint,omitempty"`
	Execs    int64         `cbor:"3,keyasint,omitempty"` // that are frozen
	// FreeBytes is the machine's free memory, with ReportFree.
	FreeBytes int64 `cbor:"4,keyasint,omitempty"`
}

// Validate checks the bounds of what a guest may claim.
func (r *FreezeResult) Validate() error {
	if r.Took < 0 || r.Prepared < 0 || r.Execs < 0 || r.FreeBytes < 0 {
		return errors.New("count is negative")
	}
	return nil
}

// Generation makes a machine differ from all others of its checkpoint, and
// lets its frozen processes go on. It is sent after each restore, fork and
// rollback.
type Generation struct {
	// Number is greater than that of every generation before.
	Number uint64 `cbor:"1,keyasint"`
	// Seed is fresh randomness of the host's, SeedSize bytes.
	Seed []byte `cbor:"2,keyasint"`
	// Wall is the time in nanoseconds since 1970.
	Wall      int64  `cbor:"3,keyasint"`
	Hostname  string `cbor:"4,keyasint"`
	MachineID []byte `cbor:"5,keyasint"` // MachineIDSize bytes
}

// Validate checks the bounds.
func (g *Generation) Validate() error {
	switch {
	case g.Number == 0:
		return errors.New("generation is 0")
	case len(g.Seed) != SeedSize:
		return fmt.Errorf("seed has %d bytes, not %d", len(g.Seed), SeedSize)
	case g.Wall < minWall || g.Wall > maxWall:
		return fmt.Errorf("wall clock %d is out of range", g.Wall)
	case len(g.MachineID) != MachineIDSize:
		return fmt.Errorf("machine id has %d bytes, not %d", len(g.MachineID), MachineIDSize)
	}
	return validHostname(g.Hostname)
}

// validHostname checks a name of RFC 1123.
func validHostname(name string) error {
	if name == "" || len(name) > MaxHostname || name[0] == '-' || name[0] == '.' {
		return fmt.Errorf("hostname %.70q is not valid", name)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.':
		default:
			return fmt.Errorf("hostname %.70q is not valid", name)
		}
	}
	return nil
}

// GenerationResult acknowledges a Generation: all of it is done, and the
// processes go on when it was sent.
type GenerationResult struct {
	Number uint64          `cbor:"1,keyasint"`
	Steps  GenerationSteps `cbor:"2,keyasint"`
	// WallBefore and Wall are the guest's clock before it was set and at the
	// end, in nanoseconds since 1970.
	WallBefore int64 `cbor:"3,keyasint"`
	Wall       int64 `cbor:"4,keyasint"`
	// Destroyed is the number of connections that were ended.
	Destroyed int64 `cbor:"5,keyasint,omitempty"`
	// Frozen says that there were frozen processes, which go on now.
	Frozen bool `cbor:"6,keyasint,omitempty"`
}

// GenerationSteps are the times of the steps, in their order.
type GenerationSteps struct {
	Random      time.Duration `cbor:"1,keyasint"` // kernel's generator reseeded
	Clock       time.Duration `cbor:"2,keyasint"`
	Identity    time.Duration `cbor:"3,keyasint"` // machine id, hostname
	Connections time.Duration `cbor:"4,keyasint"`
	File        time.Duration `cbor:"5,keyasint"` // that tells processes of the generation
	Hooks       time.Duration `cbor:"6,keyasint"` // of warm interpreters
}

// Validate checks the bounds of what a guest may claim.
func (r *GenerationResult) Validate() error {
	s := r.Steps
	for _, d := range []time.Duration{s.Random, s.Clock, s.Identity, s.Connections, s.File, s.Hooks} {
		if d < 0 {
			return errors.New("time of a step is negative")
		}
	}
	if r.Destroyed < 0 {
		return errors.New("count is negative")
	}
	return nil
}
