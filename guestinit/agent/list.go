package agent

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

// list sends the facts of everything below a directory.
func (c *conn) list(payload []byte) error {
	var req agentproto.ListRequest
	if ok, err := c.decode(payload, &req); !ok {
		return err
	}
	if req.Depth == 0 {
		req.Depth = agentproto.MaxListDepth
	}
	prefix := req.Dir
	if prefix == "." {
		prefix = ""
	}
	fd, err := c.s.openDir(req.Dir)
	if err != nil {
		return c.sendError(err)
	}
	l := &lister{c: c, left: req.Max}
	if err := l.walk(fd, prefix, int(req.Depth)); err != nil {
		return c.sendError(err)
	}
	if err := l.flush(); err != nil {
		return err
	}
	return c.send(agentproto.FrameOK, agentproto.ListEnd{Truncated: l.truncated})
}

// lister walks a tree that belongs to the job and may change meanwhile. Depth
// bounds its open descriptors, left its entries.
type lister struct {
	c         *conn
	left      int64
	batch     agentproto.Entries
	size      int // of the batch on the wire, roughly
	truncated string
}

// walk lists the directory fd, which it closes.
func (l *lister) walk(fd int, prefix string, depth int) error {
	dir := os.NewFile(uintptr(fd), prefix)
	defer dir.Close()
	names, err := l.names(dir)
	if err != nil {
		return fmt.Errorf("agent: list %q: %w", prefix, err)
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
			return fmt.Errorf("agent: list %q: %w", path.Join(prefix, name), err)
		}
		if err := l.add(fileInfo(path.Join(prefix, name), &st)); err != nil {
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

// entrySize is an upper bound of an entry's encoding without its path.
const entrySize = 96

// add queues one entry and sends the batch before it outgrows a frame.
func (l *lister) add(info agentproto.FileInfo) error {
	n := entrySize + len(info.Path)
	if l.size+n > agentproto.MaxPayload-64 {
		if err := l.flush(); err != nil {
			return err
		}
	}
	l.batch.Files = append(l.batch.Files, info)
	l.size += n
	l.left--
	return nil
}

func (l *lister) flush() error {
	if len(l.batch.Files) == 0 {
		return nil
	}
	err := l.c.send(agentproto.FrameEntries, l.batch)
	l.batch.Files, l.size = l.batch.Files[:0], 0
	return err
}
