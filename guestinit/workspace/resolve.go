package workspace

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// Every path of the host's is resolved below the workspace's descriptor with
// these: no component may be a symbolic link, a magic link or another mount,
// and ".." cannot leave. The tree belongs to the job, which may change it at
// any moment; openat2 checks while it walks, so there is nothing to win by
// that.
const resolveFlags = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// openBelow opens a path relative to dir.
func openBelow(dir int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: resolveFlags})
		// EAGAIN: a rename elsewhere raced with the walk (openat2(2)).
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return -1, fmt.Errorf("workspace: open %q: %w", name, err)
		}
		return fd, nil
	}
}

// openDir opens a directory of the workspace; "" and "." are its root.
func (t *Tree) openDir(name string) (int, error) {
	if name == "" {
		name = "."
	}
	return openBelow(int(t.root.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY)
}

// MakeDir makes a directory for the job where it is missing, and those above it.
func (t *Tree) MakeDir(name string) error {
	parent, base, err := t.openParent(name)
	if err != nil {
		return err
	}
	defer unix.Close(parent)
	dir, err := stepInto(parent, base)
	if err != nil {
		return err
	}
	return unix.Close(dir)
}

// openParent opens the directory that holds name, making those that are
// missing, and returns it with name's last component.
func (t *Tree) openParent(name string) (dir int, base string, err error) {
	parent, base := path.Split(name)
	if dir, err = t.openDir("."); err != nil {
		return -1, "", err
	}
	for part := range strings.SplitSeq(strings.TrimSuffix(parent, "/"), "/") {
		if part == "" {
			continue
		}
		next, err := stepInto(dir, part)
		unix.Close(dir)
		if err != nil {
			return -1, "", err
		}
		dir = next
	}
	return dir, base, nil
}

// stepInto opens the child directory of dir, making it for the job if there
// is none.
func stepInto(dir int, name string) (int, error) {
	err := unix.Mkdirat(dir, name, 0o755)
	made := err == nil
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, fmt.Errorf("workspace: make directory %q: %w", name, err)
	}
	fd, err := openBelow(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	if made {
		if err := unix.Fchown(fd, agentproto.DefaultID, agentproto.DefaultID); err != nil {
			unix.Close(fd)
			return -1, fmt.Errorf("workspace: own directory %q: %w", name, err)
		}
	}
	return fd, nil
}

// Open opens a regular file for reading, and returns its facts. It looks
// before it opens: the open of a device or a FIFO could block or have an
// effect.
func (t *Tree) Open(name string) (*os.File, agentproto.FileInfo, error) {
	var info agentproto.FileInfo
	probe, err := openBelow(int(t.root.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return nil, info, err
	}
	defer unix.Close(probe)
	var st unix.Stat_t
	if err := unix.Fstat(probe, &st); err != nil {
		return nil, info, fmt.Errorf("workspace: stat %q: %w", name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, info, &agentproto.Error{Code: agentproto.CodeNotRegular, Message: fmt.Sprintf("%q is not a regular file", name)}
	}
	// The very file that was looked at, whatever its name leads to by now.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", probe), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, info, fmt.Errorf("workspace: open %q: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), fileInfo(name, &st), nil
}

// fileInfo makes the wire form of what lstat tells.
func fileInfo(name string, st *unix.Stat_t) agentproto.FileInfo {
	types := map[uint32]agentproto.FileType{
		unix.S_IFREG: agentproto.TypeFile, unix.S_IFDIR: agentproto.TypeDir, unix.S_IFLNK: agentproto.TypeSymlink,
		unix.S_IFIFO: agentproto.TypeFIFO, unix.S_IFSOCK: agentproto.TypeSocket,
		unix.S_IFCHR: agentproto.TypeChar, unix.S_IFBLK: agentproto.TypeBlock,
	}
	return agentproto.FileInfo{
		Path: name, Type: types[st.Mode&unix.S_IFMT], Size: st.Size, Mode: st.Mode & 0o7777,
		Nlink: uint64(st.Nlink), Blocks: st.Blocks, UID: st.Uid, GID: st.Gid, ModTime: st.Mtim.Nano(),
	}
}
