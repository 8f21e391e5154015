// Package workspace is the part of the guest's file system that the host may
// reach: one directory, whose tree belongs to the jobs. Nothing that a job puts
// there, at whatever moment, leads the agent out of it.
package workspace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Tree is the directory. Safe for concurrent use.
type Tree struct{ root *os.File }

// Open opens the directory at path.
func Open(path string) (*Tree, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("workspace: open: %w", err)
	}
	return &Tree{os.NewFile(uintptr(fd), path)}, nil
}

// Close lets the directory go.
func (t *Tree) Close() error { return t.root.Close() }
