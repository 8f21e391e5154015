package workspace

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// Walk gives visit the facts of everything below a directory, in order, no
// more than max entries and depth levels. It says what it was cut short by:
// "", "count" or "depth". The tree belongs to the job and may change
// meanwhile.
func (t *Tree) Walk(dir string, max int64, depth int, visit func(agentproto.FileInfo) error) (truncated string, err error) {
	prefix := dir
	if prefix == "." {
		prefix = ""
	}
	fd, err := t.openDir(dir)
	if err != nil {
		return "", err
	}
	l := &lister{visit: visit, left: max}
	err = l.walk(fd, prefix, depth)
	return l.truncated, err
}

// Empty says whether a directory has no entries. What is none, or cannot be read, is not empty.
func (t *Tree) Empty(name string) bool {
	fd, err := t.openDir(name)
	if err != nil {
		return false
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	_, err = dir.Readdirnames(1)
	return err == io.EOF
}

// lister walks a tree. Depth bounds its open descriptors, left its entries.
type lister struct {
	visit     func(agentproto.FileInfo) error
	left      int64
	truncated string
}

// walk lists the directory fd, which it closes.
func (l *lister) walk(fd int, prefix string, depth int) error {
	dir := os.NewFile(uintptr(fd), prefix)
	defer dir.Close()
	names, err := l.names(dir)
	if err != nil {
		return fmt.Errorf("workspace: list %q: %w", prefix, err)
	}
	for _, name := range names {
		if l.left == 0 {
			l.truncated = "count"
			return nil
		}
		var st unix.Stat_t
		err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, unix.ENOENT) {
			continue // removed meanwhile
		}
		if err != nil {
			return fmt.Errorf("workspace: list %q: %w", path.Join(prefix, name), err)
		}
		l.left--
		if err := l.visit(fileInfo(path.Join(prefix, name), &st)); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if depth == 1 {
			if l.truncated == "" {
				l.truncated = "depth"
			}
			continue
		}
		child, err := openBelow(fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			continue // it was a directory a moment ago: removed or replaced
		}
		if err := l.walk(child, path.Join(prefix, name), depth-1); err != nil {
			return err
		}
	}
	return nil
}

// names returns a directory's names in order, at most one more than can still
// be listed.
func (l *lister) names(dir *os.File) ([]string, error) {
	const step = 512
	var names []string
	for int64(len(names)) <= l.left {
		more, err := dir.Readdirnames(step)
		names = append(names, more...)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return names, nil
}
