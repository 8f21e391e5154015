package vmmproto

import "fmt"

// Kinds about snapshots.
const (
	KindRestore  Kind = "restore"  // by the daemon
	KindSave     Kind = "save"     // by the daemon
	KindChanges  Kind = "changes"  // by the daemon
	KindRestored Kind = "restored" // by thaw-vmm
	KindSaved    Kind = "saved"    // by thaw-vmm
	KindChanged  Kind = "changed"  // by thaw-vmm
)

// MaxOverlays is how many files of pages an image can have besides its base.
const MaxOverlays = 16

// Restore gives a shell the machine that it is to be or, InPlace, puts a machine
// back to where it was saved. With Stream it runs when that is done, else it is
// paused. Answered by Restored, or by Done with the reason why not.
//
// Descriptors, in this order: state; plan; base, if Base; each overlay; each disk's
// layers, bottom first; the process's page map, if Pagemap; the device that makes
// userfaultfds, if Userfault; a file for the pages that the machine had made its own,
// if Record; a stream Unix socket that is served like those which connect to the vsock
// listener, if Stream.
//
// With Rebase a machine goes on as it is, and has the same image from other files:
// fewer than its checkpoints have added.
type Restore struct {
	ID        uint64
	InPlace   bool
	Rebase    bool
	Base      bool
	Overlays  int
	Layers    []int // of each disk
	Pagemap   bool
	Userfault bool
	Record    bool
	Stream    bool
	Tracker   string // to start; empty: the VMM's choice
}

// Restored answers Restore. The counts are in pages, and of a restore in place.
type Restored struct {
	ID      uint64
	Phases  []Phase
	Private int // that the machine had made its own
	Copied  int // of them, that differed
	PutBack int
	Dropped bool // dropped rather than compared
}

// Save writes a paused instant of the machine. Answered by Saved, or by Done with
// the reason why not; the machine goes on in both cases, if Resume.
//
// Descriptors, in this order: the state's file; the file for pages, if Memory; a new
// top layer for each writable disk; the device that makes userfaultfds, if Userfault.
type Save struct {
	ID        uint64
	Memory    bool
	Tops      int
	Tracker   string
	CopyAhead bool
	// WriteProtect has pages copied after the pause.
	WriteProtect bool
	Next         string
	Userfault    bool
	Resume       bool
}

// Saved answers Save. Counts are in pages.
type Saved struct {
	ID          uint64
	Tracker     string // that found the pages
	StateBytes  int64
	Pages       int // in the file
	Zero        int // that are zeros now and were not
	Candidates  int
	Same        int
	Again       int
	PauseMicros int64
	AheadMicros int64
	Phases      []Phase
}

// Changes asks how many pages differ from what the machine was restored from or saved as
// last. Answered by Changed, or by Done with the reason why not.
type Changes struct {
	ID uint64
}

// Changed answers Changes. Counts are in pages.
type Changed struct {
	ID     uint64
	Differ int
	Looked int // that were compared
}

func (*Restore) Kind() Kind  { return KindRestore }
func (*Restored) Kind() Kind { return KindRestored }
func (*Save) Kind() Kind     { return KindSave }
func (*Saved) Kind() Kind    { return KindSaved }
func (*Changes) Kind() Kind  { return KindChanges }
func (*Changed) Kind() Kind  { return KindChanged }

func (m *Restored) RequestID() uint64 { return m.ID }
func (m *Saved) RequestID() uint64    { return m.ID }
func (m *Changed) RequestID() uint64  { return m.ID }

// Descriptors implements Message.
func (m *Restore) Descriptors() int {
	n := 2 + m.Overlays
	for _, layers := range m.Layers {
		n += layers
	}
	for _, has := range []bool{m.Base, m.Pagemap, m.Userfault, m.Record, m.Stream} {
		if has {
			n++
		}
	}
	return n
}

// Descriptors implements Message.
func (m *Save) Descriptors() int {
	n := 1 + m.Tops
	for _, has := range []bool{m.Memory, m.Userfault} {
		if has {
			n++
		}
	}
	return n
}

func (*Restored) Descriptors() int { return 0 }
func (*Saved) Descriptors() int    { return 0 }
func (*Changes) Descriptors() int  { return 0 }
func (*Changed) Descriptors() int  { return 0 }

// Validate implements Message.
func (m *Restore) Validate() error {
	switch {
	case m.Overlays < 0 || m.Overlays > MaxOverlays:
		return fmt.Errorf("overlays %d: not in 0..%d", m.Overlays, MaxOverlays)
	case m.Rebase && (m.InPlace || m.Pagemap || m.Userfault || m.Record || m.Stream || m.Tracker != "" || len(m.Layers) > 0):
		return fmt.Errorf("rebase: changes nothing but the files of the memory")
	case len(m.Layers) > MaxDisks:
		return fmt.Errorf("layers of %d disks, most is %d", len(m.Layers), MaxDisks)
	}
	for _, n := range m.Layers {
		if n < 1 || n > MaxLayers {
			return fmt.Errorf("layers %d: not in 1..%d", n, MaxLayers)
		}
	}
	if n := m.Descriptors(); n > MaxFiles {
		return fmt.Errorf("%d descriptors, most is %d", n, MaxFiles)
	}
	return checkTracker("tracker", m.Tracker)
}

// Validate implements Message.
func (m *Save) Validate() error {
	if m.Tops < 0 || m.Tops > MaxDisks {
		return fmt.Errorf("tops %d: not in 0..%d", m.Tops, MaxDisks)
	}
	if err := checkTracker("tracker", m.Tracker); err != nil {
		return err
	}
	return checkTracker("next", m.Next)
}

func checkTracker(what, name string) error {
	if name == "" {
		return nil
	}
	return checkName(what, name, 32)
}

// Validate implements Message.
func (*Changes) Validate() error { return nil }

// Validate implements Message.
func (m *Changed) Validate() error {
	if m.Differ > m.Looked {
		return fmt.Errorf("%d of %d pages differ", m.Differ, m.Looked)
	}
	return checkCounts(m.Differ, m.Looked)
}

// Validate implements Message.
func (m *Restored) Validate() error {
	if err := checkCounts(m.Private, m.Copied, m.PutBack); err != nil {
		return err
	}
	return checkPhases(m.Phases)
}

// Validate implements Message.
func (m *Saved) Validate() error {
	if err := checkCounts(m.Pages, m.Zero, m.Candidates, m.Same, m.Again); err != nil {
		return err
	}
	if m.StateBytes < 0 || m.StateBytes > MaxMemory || !anHour(m.PauseMicros) || !anHour(m.AheadMicros) {
		return fmt.Errorf("state of %d bytes, pause of %d µs, copying ahead of %d µs", m.StateBytes, m.PauseMicros, m.AheadMicros)
	}
	if err := checkTracker("tracker", m.Tracker); err != nil {
		return err
	}
	return checkPhases(m.Phases)
}

// checkCounts takes numbers of pages: a page may be looked at twice.
func checkCounts(counts ...int) error {
	for _, n := range counts {
		if n < 0 || n > 2*MaxMemory/4096 {
			return fmt.Errorf("%d pages: more than there are", n)
		}
	}
	return nil
}
