package manifest

import (
	"fmt"
	"strings"

	"thaw/snapshot/format"
)

// Incompatible says in what a snapshot differs from the host or program that is
// to run it. It wraps ErrIncompatible.
type Incompatible struct {
	ID      string
	Differs []Difference
}

// Difference is one thing that differs.
type Difference struct {
	What       string // "CPU", "CPU features", "kernel", "image", "VMM version", "host kind", "host kernel", "format"
	Have, Want string // here; in the snapshot
}

// Error names what differs.
func (e *Incompatible) Error() string {
	var parts []string
	for _, d := range e.Differs {
		parts = append(parts, fmt.Sprintf("%s is %q, the snapshot's is %q", d.What, d.Have, d.Want))
	}
	return fmt.Sprintf("manifest: snapshot %s: %s: %v", e.ID, strings.Join(parts, "; "), ErrIncompatible)
}

// Unwrap makes errors.Is find ErrIncompatible.
func (e *Incompatible) Unwrap() error { return ErrIncompatible }

// Format is the version of state files that this program writes.
func Format() string { return fmt.Sprintf("%d.%d", format.Major, format.Minor) }

// Check compares the snapshot's fingerprint with that of here. A field that is
// empty here is not compared: a caller that runs no guest may not know the CPU.
// Every difference refuses, none warns: a machine restored on another CPU model
// may compute wrongly. The error is an *Incompatible.
func (m *Manifest) Check(here Fingerprint) error {
	var differs []Difference
	for _, d := range []Difference{
		{"CPU", here.CPU, m.Fingerprint.CPU},
		{"CPU features", here.CPUHash, m.Fingerprint.CPUHash},
		{"kernel", here.Kernel, m.Fingerprint.Kernel},
		{"image", here.Image, m.Fingerprint.Image},
		{"VMM version", here.VMM, m.Fingerprint.VMM},
		{"host kind", here.Host, m.Fingerprint.Host},
		{"host kernel", here.HostKrn, m.Fingerprint.HostKrn},
	} {
		if d.Have != "" && d.Have != d.Want {
			differs = append(differs, d)
		}
	}
	if here.Format != "" && !readable(m.Fingerprint.Format) {
		differs = append(differs, Difference{"format", here.Format, m.Fingerprint.Format})
	}
	if len(differs) == 0 {
		return nil
	}
	return &Incompatible{ID: m.ID, Differs: differs}
}

// readable says whether package format reads state files of a version.
func readable(version string) bool {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || err != nil {
		return false
	}
	return major == format.Major && minor >= 0 && minor <= format.Minor
}
