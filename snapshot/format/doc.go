// Package format is the file that holds a machine's state: a header of fixed
// layout, then sections, one for each component.
//
//	0 ┌───────────────────────────────┐
//	  │ header, 4096 bytes            │ magic, architecture, version, table of
//	  │                               │ sections with their SHA-256, and the
//	  │                               │ header's own SHA-256 in its last bytes
//	4096 ├────────────────────────────┤
//	  │ section 0                     │ CBOR (Marshal), or the encoding of
//	  │ section 1                     │ another package ("memory": a page index)
//	  │ …                             │
//	  └───────────────────────────────┘
//
// Sections follow each other without a gap, so every byte of the file is under a
// digest. The file says nothing about the host's resources: descriptors, paths and
// addresses are given to whoever restores. docs/snapshot-format.md has the layout
// byte by byte.
//
// The file comes from a jailed VMM process, a disk or an archive: Read and
// Unmarshal take it for hostile bytes.
package format

import "errors"

var (
	// ErrFormat says that bytes are not a state file, or a malformed one.
	ErrFormat = errors.New("malformed state file")
	// ErrVersion says that a state file has a format version that this program cannot read.
	ErrVersion = errors.New("state file of another format version")
	// ErrArchitecture says that a state file is of another CPU architecture.
	ErrArchitecture = errors.New("state file of another architecture")
	// ErrDigest says that a state file is damaged or cut short.
	ErrDigest = errors.New("damaged state file")
	// ErrSection says that a state file lacks a section.
	ErrSection = errors.New("no such section")
)

// Version of the format that Writer writes. Read takes files of the same major
// version whose minor version is not newer.
const (
	Major = 1
	Minor = 0
)

// Architecture is a CPU architecture as the header names it.
type Architecture uint16

// Architectures that have a number. Only X86_64 is written today.
const (
	X86_64 Architecture = 1
	ARM64  Architecture = 2
)

// Bounds of a file, in bytes where not said otherwise.
const (
	HeaderSize  = 4096
	MaxSections = 16      // sections
	MaxSection  = 8 << 20 // one section
	MaxFile     = 8 << 20 // header and sections together
	MaxName     = 31      // a section's name
)

// Names of the sections that a VMM writes.
const (
	SectionMachine = "machine" // CBOR: state of vCPUs, chips, clock and devices
	SectionMemory  = "memory"  // package pageindex: what the delta changed
)
