package agentproto

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Bounds of file requests.
const (
	// MaxName is the longest name of one path component (NAME_MAX).
	MaxName = 255
	// MaxListDepth is how deep a listing goes below the named directory.
	MaxListDepth = 32
	// MaxListEntries bounds ListRequest.Max.
	MaxListEntries = 1 << 20
	// MaxPathDepth is the largest number of components of a path.
	MaxPathDepth = 64
)

// PutRequest starts a file transfer into the guest: FramePutData frames
// follow, the last with FlagEnd. The file appears under its name only when it
// is whole.
type PutRequest struct {
	Path string `cbor:"1,keyasint"` // relative to /workspace
	Mode uint32 `cbor:"2,keyasint"` // permission bits; others are cleared
	Size int64  `cbor:"3,keyasint"` // bytes; -1 if not known ahead
}

// Validate checks path and size.
func (r *PutRequest) Validate() error {
	if r.Size < -1 {
		return errors.New("size is negative")
	}
	return ValidPath(r.Path)
}

// GetRequest asks for a regular file of at most Max bytes.
type GetRequest struct {
	Path string `cbor:"1,keyasint"`
	Max  int64  `cbor:"2,keyasint"`
}

// Validate checks path and bound.
func (r *GetRequest) Validate() error {
	if r.Max < 0 {
		return errors.New("max is negative")
	}
	return ValidPath(r.Path)
}

// ListRequest asks for the facts of everything below Dir, without following
// links. Dir "" or "." is /workspace itself.
type ListRequest struct {
	Dir   string `cbor:"1,keyasint"`
	Max   int64  `cbor:"2,keyasint"` // entries
	Depth int64  `cbor:"3,keyasint"` // 1 is Dir's own entries only; 0 is MaxListDepth
}

// Validate checks path and bounds.
func (r *ListRequest) Validate() error {
	if r.Max < 1 || r.Max > MaxListEntries {
		return fmt.Errorf("max is not within 1 to %d", MaxListEntries)
	}
	if r.Depth < 0 || r.Depth > MaxListDepth {
		return fmt.Errorf("depth is not within 0 to %d", MaxListDepth)
	}
	if r.Dir == "" || r.Dir == "." {
		return nil
	}
	return ValidPath(r.Dir)
}

// ListEnd is the FrameOK of a listing. Truncated is "" if it is complete,
// "count" or "depth" if it met that bound.
type ListEnd struct {
	Truncated string `cbor:"1,keyasint,omitempty"`
}

// ValidPath checks a path relative to /workspace: no empty, "." or ".."
// component, no NUL, bounded. What the path resolves to is the agent's
// concern: it resolves it inside /workspace and through no symbolic link.
func ValidPath(p string) error {
	if p == "" || len(p) > MaxPath {
		return fmt.Errorf("path of %d bytes", len(p))
	}
	if strings.Contains(p, "\x00") {
		return errors.New("path holds a NUL byte")
	}
	parts := strings.Split(p, "/")
	if len(parts) > MaxPathDepth {
		return fmt.Errorf("path has %d components, more than %d", len(parts), MaxPathDepth)
	}
	for _, part := range parts {
		switch {
		case part == "" || part == "." || part == "..":
			return fmt.Errorf("path has the component %q", part)
		case len(part) > MaxName:
			return fmt.Errorf("path has a component of %d bytes", len(part))
		}
	}
	return nil
}

// FileType is the kind of a directory entry.
type FileType string

// The file types.
const (
	TypeFile    FileType = "file"
	TypeDir     FileType = "dir"
	TypeSymlink FileType = "symlink"
	TypeFIFO    FileType = "fifo"
	TypeSocket  FileType = "socket"
	TypeChar    FileType = "char"
	TypeBlock   FileType = "block"
)

var fileTypes = map[FileType]bool{
	TypeFile: true, TypeDir: true, TypeSymlink: true, TypeFIFO: true,
	TypeSocket: true, TypeChar: true, TypeBlock: true,
}

// FileInfo holds the facts that lstat tells of one entry.
type FileInfo struct {
	Path    string   `cbor:"1,keyasint"` // relative to /workspace
	Type    FileType `cbor:"2,keyasint"`
	Size    int64    `cbor:"3,keyasint"`
	Mode    uint32   `cbor:"4,keyasint"` // permission bits, setuid, setgid, sticky
	Nlink   uint64   `cbor:"5,keyasint"`
	Blocks  int64    `cbor:"6,keyasint"` // of 512 bytes: fewer than Size/512 means holes
	UID     uint32   `cbor:"7,keyasint"`
	GID     uint32   `cbor:"8,keyasint"`
	ModTime int64    `cbor:"9,keyasint"` // nanoseconds since 1970
}

// Time returns the modification time.
func (f FileInfo) Time() time.Time { return time.Unix(0, f.ModTime) }

// Validate checks what a guest claims. The path is checked like one of ours,
// but it may be deeper: jobs make deep trees, and the caller decides.
func (f *FileInfo) Validate() error {
	if !fileTypes[f.Type] {
		return fmt.Errorf("file type %.32q is unknown", string(f.Type))
	}
	if f.Size < 0 || f.Blocks < 0 {
		return errors.New("file size is negative")
	}
	if f.Mode&^0o7777 != 0 {
		return fmt.Errorf("file mode %#o is out of range", f.Mode)
	}
	if f.Path == "" || len(f.Path) > 2*MaxPath || strings.HasPrefix(f.Path, "/") || strings.Contains(f.Path, "\x00") {
		return fmt.Errorf("path of %d bytes is not relative", len(f.Path))
	}
	for part := range strings.SplitSeq(f.Path, "/") {
		if part == "" || part == "." || part == ".." || len(part) > MaxName {
			return fmt.Errorf("path has the component %.32q", part)
		}
	}
	return nil
}

// Entries is the payload of a FrameEntries.
type Entries struct {
	Files []FileInfo `cbor:"1,keyasint"`
}

// Validate checks every entry.
func (e *Entries) Validate() error {
	for i := range e.Files {
		if err := e.Files[i].Validate(); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return nil
}
