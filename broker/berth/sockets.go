package berth

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// socketDir is a tmpfs that is mounted nowhere (fsopen(2), fsmount(2)): the sockets of a
// daemon's machines have their names in it, which nobody else can reach and which are gone
// with the daemon. A disk's file system would give each an inode, and take its time: ext4
// without a journal looks at each inode that was deleted within the last minute first.
type socketDir struct{ root *os.File }

func newSocketDir() (*socketDir, error) {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("berth: make file system of sockets: %w", err)
	}
	defer unix.Close(fs)
	// It has no content but names.
	err = errors.Join(unix.FsconfigSetString(fs, "mode", "0700"), unix.FsconfigSetString(fs, "size", "4k"))
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return nil, fmt.Errorf("berth: configure file system of sockets: %w", err)
	}
	root, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return nil, fmt.Errorf("berth: mount file system of sockets: %w", err)
	}
	return &socketDir{os.NewFile(uintptr(root), "sockets")}, nil
}

// path is where a machine's socket is for as long as the directory is open. It goes
// through the descriptor: there is no other way to the mount, and a socket's path has 108
// bytes at most (unix(7)).
func (d *socketDir) path(id string) string {
	return filepath.Join("/proc/self/fd", strconv.Itoa(int(d.root.Fd())), id)
}

// close lets go of the mount. No machine is left then.
func (d *socketDir) close() error { return d.root.Close() }
