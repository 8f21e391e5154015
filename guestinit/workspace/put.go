package workspace

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// Transfer is a file that is being received. It has a name of its own until
// it is whole; then it is renamed over its target. The directory is the job's,
// so the job may remove or replace the temporary file: it gains nothing that
// it could not do to the finished one.
type Transfer struct {
	req       agentproto.PutRequest
	dir       int
	tmp, base string
	f         *os.File
	written   int64
}

// Receive makes what a file is received with. Directories that its path lacks
// are made.
func (tree *Tree) Receive(req agentproto.PutRequest) (*Transfer, error) {
	dir, base, err := tree.openParent(req.Path)
	if err != nil {
		return nil, err
	}
	var random [8]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	t := &Transfer{req: req, dir: dir, base: base, tmp: ".put-" + hex.EncodeToString(random[:])}
	fd, err := unix.Openat(dir, t.tmp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		unix.Close(dir)
		return nil, fmt.Errorf("workspace: create file for %q: %w", req.Path, err)
	}
	t.f = os.NewFile(uintptr(fd), t.tmp)
	if req.Size > 0 {
		// Refuses what the disk cannot hold before any byte is sent.
		// EOPNOTSUPP: a file system without it finds out later.
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, req.Size)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
			t.Abort()
			return nil, fmt.Errorf("workspace: make room for %q: %w", req.Path, err)
		}
	}
	return t, nil
}

// Write appends bytes, no more than were announced.
func (t *Transfer) Write(b []byte) error {
	if t.req.Size >= 0 && t.written+int64(len(b)) > t.req.Size {
		return &agentproto.Error{
			Code:    agentproto.CodeBadRequest,
			Message: fmt.Sprintf("more data for %q than the %d bytes announced", t.req.Path, t.req.Size),
		}
	}
	n, err := t.f.Write(b)
	t.written += int64(n)
	if err != nil {
		return fmt.Errorf("workspace: write %q: %w", t.req.Path, err)
	}
	return nil
}

// Commit gives the file to the job under its name.
func (t *Transfer) Commit() error {
	if t.req.Size >= 0 && t.written != t.req.Size {
		return &agentproto.Error{
			Code:    agentproto.CodeBadRequest,
			Message: fmt.Sprintf("%d bytes for %q instead of %d", t.written, t.req.Path, t.req.Size),
		}
	}
	fd := int(t.f.Fd())
	if err := unix.Fchown(fd, agentproto.DefaultID, agentproto.DefaultID); err != nil {
		return fmt.Errorf("workspace: own %q: %w", t.req.Path, err)
	}
	if err := unix.Fchmod(fd, t.req.Mode&0o777); err != nil { // after chown, which clears bits
		return fmt.Errorf("workspace: set mode of %q: %w", t.req.Path, err)
	}
	if err := unix.Renameat(t.dir, t.tmp, t.dir, t.base); err != nil {
		return fmt.Errorf("workspace: name %q: %w", t.req.Path, err)
	}
	t.tmp = ""
	return nil
}

// Abort removes what was not committed and lets everything go. It is called
// in every case.
func (t *Transfer) Abort() {
	if t.tmp != "" {
		_ = unix.Unlinkat(t.dir, t.tmp, 0) // ENOENT: the job removed it
	}
	t.f.Close()
	unix.Close(t.dir)
}
