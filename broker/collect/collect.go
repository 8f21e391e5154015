// Package collect takes a job's output files out of the guest. The guest, its
// kernel and its agent are hostile: every name, mode, size and byte is.
//
// A file becomes an artifact only if it is a regular file with one link, its
// path passes api.CheckPath and collides with no other, count and bytes are within
// the job's limits, and the media type that its content has is allowed. All
// others are listed with the reason. Bytes are counted as they arrive: what the
// guest says about a size only ever makes a file be refused sooner.
package collect

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gabriel-vasile/mimetype"
	"golang.org/x/sys/unix"

	"thaw/api"
)

// File is what the guest says about a file, by lstat.
type File struct {
	Path  string // relative to the output directory
	Mode  uint32 // st_mode
	Size  int64
	Links uint64
}

// Tree is an output directory in a guest.
type Tree interface {
	// List returns at most limit entries of the whole tree, directories too, and
	// whether there are more.
	List(ctx context.Context, limit int) (files []File, more bool, err error)
	// Read copies a file's content to w. It must not follow links.
	Read(ctx context.Context, path string, w io.Writer, limit int64) error
}

// Rules are the job's limits for its outputs.
type Rules struct {
	MaxFiles int
	MaxBytes int64
	Types    []string // allowed media types, "text/*" for a family; empty allows all
	Attempt  int
}

// Artifact is a file that was taken.
type Artifact struct {
	Path      string
	Size      int64
	SHA256    string
	MediaType string
	Attempt   int
	Stored    string // file on the host that holds the content
}

// Rejected is a file that was not.
type Rejected struct {
	Path   string // safe to print
	Reason string
}

// Outcome is everything about an output tree. As JSON its lists stay below the
// bounds of names.go, whatever the guest calls its files.
type Outcome struct {
	Artifacts []Artifact
	Rejected  []Rejected // the first MaxRejected
	Refused   int        // how many were refused in all
}

// maxListed is how many entries of a tree are looked at.
const maxListed = 20000

// Fetch copies the files that may become artifacts into dir, which must be empty, or is
// made with the first of them.
// It fails only when the guest or the host does; bad files are in the outcome.
func Fetch(ctx context.Context, tree Tree, dir string, rules Rules) (*Outcome, error) {
	files, more, err := tree.List(ctx, maxListed)
	if err != nil {
		return nil, fmt.Errorf("collect: list outputs: %w", err)
	}
	if len(files) > maxListed {
		files, more = files[:maxListed], true
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	c := &collector{rules: rules, dir: dir, taken: newPaths(), left: rules.MaxBytes, room: maxListing}
	if more {
		c.out.reject("…", fmt.Sprintf("the tree has more than %d entries; the rest was not looked at", maxListed))
	}
	for _, f := range files {
		if f.Mode&unix.S_IFMT == unix.S_IFDIR {
			continue
		}
		if err := c.take(ctx, tree, f); err != nil {
			return nil, err
		}
	}
	return &c.out, nil
}

type collector struct {
	rules Rules
	dir   string
	taken *paths
	left  int64 // bytes of content
	room  int   // bytes of the list of artifacts
	out   Outcome
}

// reject counts a refused file, and names it if few are named yet.
func (o *Outcome) reject(path, reason string) {
	o.Refused++
	if len(o.Rejected) < MaxRejected {
		o.Rejected = append(o.Rejected, Rejected{printable(path), reason})
	}
}

// take fetches one file or rejects it.
func (c *collector) take(ctx context.Context, tree Tree, f File) error {
	if reason := c.precheck(f); reason != "" {
		c.out.reject(f.Path, reason)
		return nil
	}
	a := Artifact{Path: f.Path, Attempt: c.rules.Attempt, Stored: filepath.Join(c.dir, strconv.Itoa(len(c.out.Artifacts)))}
	if err := os.Mkdir(c.dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("collect: make directory: %w", err)
	}
	n, sum, err := c.copy(ctx, tree, f, a.Stored)
	switch {
	case errors.Is(err, errTooMuch):
		c.out.reject(f.Path, "gives more bytes than it said or than output_bytes allows")
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("collect: read outputs: %w", context.Cause(ctx))
	case err != nil:
		c.out.reject(f.Path, "cannot be read: "+quoted(err.Error(), maxReason))
	case n != f.Size:
		c.out.reject(f.Path, fmt.Sprintf("gave %d bytes after saying %d", n, f.Size))
	default:
		a.Size, a.SHA256 = n, sum
		c.left -= n
		c.room -= listed(f.Path)
		c.out.Artifacts = append(c.out.Artifacts, a)
		return nil
	}
	if err := os.Remove(a.Stored); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("collect: remove refused file: %w", err)
	}
	return nil
}

// precheck returns why a file cannot be taken, judging by what the guest says.
func (c *collector) precheck(f File) string {
	if kind := kindOf(f.Mode); kind != "" {
		return "is a " + kind
	}
	if f.Links != 1 {
		return fmt.Sprintf("has %d links", f.Links)
	}
	if err := api.CheckPath(f.Path); err != nil {
		return err.Error()
	}
	if f.Size < 0 || f.Size > c.left {
		return fmt.Sprintf("has %d bytes, and %d are left of output_bytes", f.Size, c.left)
	}
	if len(c.out.Artifacts) >= c.rules.MaxFiles {
		return fmt.Sprintf("is beyond output_files (%d)", c.rules.MaxFiles)
	}
	if listed(f.Path) > c.room {
		return fmt.Sprintf("is beyond what a list of artifacts may hold (%d bytes)", maxListing)
	}
	if err := c.taken.add(f.Path); err != nil {
		return err.Error()
	}
	return ""
}

// kindOf names what is not a regular file; "" is one.
func kindOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return ""
	case unix.S_IFLNK:
		return "symbolic link"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFBLK, unix.S_IFCHR:
		return "device"
	}
	return "file of unknown kind"
}

var errTooMuch = errors.New("collect: more bytes than allowed")

// bounded fails a writer that gets more than left bytes.
type bounded struct {
	w       io.Writer
	left, n int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errTooMuch
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	b.n += int64(n)
	return n, err
}

func (c *collector) copy(ctx context.Context, tree Tree, f File, stored string) (n int64, sum string, err error) {
	dst, err := os.OpenFile(stored, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, "", err
	}
	hash := sha256.New()
	b := &bounded{w: io.MultiWriter(dst, hash), left: f.Size}
	err = tree.Read(ctx, f.Path, b, f.Size)
	if cerr := dst.Close(); err == nil {
		err = cerr
	}
	return b.n, hex.EncodeToString(hash.Sum(nil)), err
}

// Validate finds the media type of each artifact by its content and moves those
// that the rules do not allow to the rejected ones.
func (o *Outcome) Validate(rules Rules) error {
	kept := o.Artifacts[:0]
	for _, a := range o.Artifacts {
		m, err := mimetype.DetectFile(a.Stored)
		if err != nil {
			return fmt.Errorf("collect: find media type: %w", err)
		}
		a.MediaType, _, _ = strings.Cut(m.String(), ";")
		if allowed(a.MediaType, rules.Types) {
			kept = append(kept, a)
			continue
		}
		o.reject(a.Path, "media type "+a.MediaType+" is not allowed")
		if err := os.Remove(a.Stored); err != nil {
			return fmt.Errorf("collect: remove refused file: %w", err)
		}
	}
	o.Artifacts = kept
	return nil
}

func allowed(mediaType string, types []string) bool {
	if len(types) == 0 {
		return true
	}
	family, _, _ := strings.Cut(mediaType, "/")
	return slices.Contains(types, mediaType) || slices.Contains(types, family+"/*") || slices.Contains(types, "*/*")
}
