package manifest

import (
	"time"
)

// Kind says what a snapshot is.
type Kind string

// Kinds of snapshots.
const (
	Template   Kind = "template"   // all of a machine
	Checkpoint Kind = "checkpoint" // what changed since its parent
)

// Version is the version of manifest.json.
const Version = 1

// Manifest describes a snapshot. What the store returns must not be changed.
type Manifest struct {
	Version     int               `json:"version"`
	ID          string            `json:"id"` // 32 hex digits
	Kind        Kind              `json:"kind"`
	Parent      string            `json:"parent,omitempty"`
	Created     time.Time         `json:"created"`
	Tenant      string            `json:"tenant,omitempty"`
	Name        string            `json:"name,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Pinned      bool              `json:"pinned,omitempty"` // kept by GC
	Generation  uint64            `json:"generation"`       // of the machine when it was saved
	Machine     Machine           `json:"machine"`
	Fingerprint Fingerprint       `json:"fingerprint"`
	// Files are all of the directory's, but for the manifest and the .sum of layers.
	Files []File `json:"files"`
	// Memory has the layers that the index names: the first is source Base, the
	// one at position i is source FirstOverlay+i-1.
	Memory []Ref  `json:"memory"`
	Disks  []Disk `json:"disks"`
	Record Record `json:"record"`
	// Merged has the snapshots whose layers Merge folded into this one's.
	Merged []string `json:"merged,omitempty"`
	// Origin is the id that an imported snapshot had where it came from.
	Origin string `json:"origin,omitempty"`
}

// Machine is the shape that a restore needs.
type Machine struct {
	VCPUs       int    `json:"vcpus"`
	MemoryBytes uint64 `json:"memory_bytes"`
}

// File is one file of a snapshot's directory.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
	// Digest is the SHA-256 of the file in hex, or of its list of chunk digests.
	Digest string `json:"digest"`
	Layer  bool   `json:"layer,omitempty"` // there is a list of chunk digests
}

// Ref names a layer: a file of a snapshot in the store, or something outside that
// whoever restores must find, such as an image.
type Ref struct {
	Snapshot string `json:"snapshot,omitempty"`
	File     string `json:"file,omitempty"`
	External string `json:"external,omitempty"` // name of a file that is not the store's
	Size     int64  `json:"size"`
	Digest   string `json:"digest"`
}

// Disk is a machine's disk: its layers, the lowest first.
type Disk struct {
	ID       string `json:"id"`
	ReadOnly bool   `json:"read_only,omitempty"`
	Size     int64  `json:"size"`
	Layers   []Ref  `json:"layers"`
}

// Record is what making the snapshot took (requirement B10). Pages are of 4096 bytes.
type Record struct {
	Tracker        string        `json:"tracker,omitempty"`
	Candidates     int64         `json:"candidates,omitempty"` // pages that were looked at
	Pages          int64         `json:"pages,omitempty"`      // pages stored
	ZeroPages      int64         `json:"zero_pages,omitempty"` // pages that became zero
	DuplicatePages int64         `json:"same_pages,omitempty"` // candidates that had not changed
	DiskBytes      int64         `json:"disk_bytes,omitempty"` // written to disks since the parent
	Freeze         time.Duration `json:"freeze_ns,omitempty"`  // until the guest's processes stood still
	Pause          time.Duration `json:"pause_ns,omitempty"`   // while no vCPU ran
	CopyAhead      time.Duration `json:"copy_ns,omitempty"`    // copying before the pause
	Store          time.Duration `json:"store_ns,omitempty"`   // copying, hashing and syncing here
	Bytes          int64         `json:"bytes,omitempty"`      // the directory takes on disk
	Depth          int           `json:"depth"`                // 0: template
	Consistent     time.Time     `json:"consistent,omitzero"`  // the machine could be restored to this instant
	Durable        time.Time     `json:"durable,omitzero"`     // it survives a crash since then
}

// file returns the named file of the manifest.
func (m *Manifest) File(name string) (File, bool) {
	for _, f := range m.Files {
		if f.Name == name {
			return f, true
		}
	}
	return File{}, false
}

// refs calls f with each layer that the snapshot is made of.
func (m *Manifest) EachRef(f func(Ref)) {
	for _, r := range m.Memory {
		f(r)
	}
	for _, d := range m.Disks {
		for _, r := range d.Layers {
			f(r)
		}
	}
}

// needs is the snapshots that this one cannot do without, itself not among them.
func (m *Manifest) Needs() map[string]bool {
	ids := map[string]bool{}
	if m.Parent != "" {
		ids[m.Parent] = true
	}
	m.EachRef(func(r Ref) {
		if r.Snapshot != "" && r.Snapshot != m.ID {
			ids[r.Snapshot] = true
		}
	})
	return ids
}

// Fingerprint is what a snapshot's state depends on.
type Fingerprint struct {
	Format  string `json:"format"`                // of the state file, major.minor
	VMM     string `json:"vmm"`                   // version of the program
	Kernel  string `json:"kernel"`                // digest of the guest kernel
	Image   string `json:"image"`                 // digest of the guest's image
	CPU     string `json:"cpu"`                   // model name
	CPUHash string `json:"cpu_hash"`              // of CPUID and the list of MSRs
	Host    string `json:"host"`                  // host kind
	HostKrn string `json:"host_kernel,omitempty"` // release of the host's kernel
}
