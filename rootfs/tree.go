package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/erofs/go-erofs"
)

// tree is a file tree put together from layers, as an fs.FS that says what the
// image shall hold: one time for every file, owners that are named, no devices,
// no set-user-id bits. Content is read from the layers only when asked for.
type tree struct {
	root  *node
	mtime time.Time
}

// node is one file of a tree.
type node struct {
	mode     fs.FileMode
	uid, gid uint32
	size     int64
	link     string // target of a symbolic link
	source   string // path of the content in a layer, or
	data     []byte // the content itself
	children map[string]*node
}

// errConflict: a layer has a directory where an earlier one has a file or link.
var errConflict = errors.New("layers disagree")

func newTree(mtime time.Time) *tree {
	return &tree{root: newDir(0o755), mtime: mtime}
}

func newDir(perm fs.FileMode) *node {
	return &node{mode: fs.ModeDir | perm, children: map[string]*node{}}
}

// addLayer lays the files below dir over the tree, with permissions by clean. All
// of them belong to root: with no set-user-id bits and no daemons other owners
// mean nothing. Special files are left out.
func (t *tree) addLayer(dir string, clean func(fs.FileMode) fs.FileMode) error {
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("rootfs: walk layer: %w", err)
		}
		name, err := filepath.Rel(dir, p)
		if err != nil {
			return fmt.Errorf("rootfs: walk layer: %w", err)
		}
		info, err := d.Info()
		if err != nil {
			return fmt.Errorf("rootfs: walk layer: %w", err)
		}
		n := &node{mode: clean(info.Mode())}
		switch info.Mode().Type() {
		case fs.ModeDir:
			n.children = map[string]*node{}
		case fs.ModeSymlink:
			if n.link, err = os.Readlink(p); err != nil {
				return fmt.Errorf("rootfs: read link: %w", err)
			}
			n.size = int64(len(n.link))
		case 0:
			n.size, n.source = info.Size(), p
		default:
			return nil // devices, sockets and pipes belong to a running system
		}
		return t.put(filepath.ToSlash(name), n)
	})
}

// keepMode keeps type, permissions and the sticky bit of directories: what dpkg
// set, but nothing in a guest gains rights by running a file.
func keepMode(m fs.FileMode) fs.FileMode {
	switch m.Type() {
	case fs.ModeDir:
		return m & (fs.ModeType | fs.ModeSticky | fs.ModePerm)
	case fs.ModeSymlink:
		return fs.ModeSymlink | 0o777
	}
	return m & fs.ModePerm
}

// plainMode keeps type and the owner's right to execute, for files whose other
// permissions come from the umask of whoever made them.
func plainMode(m fs.FileMode) fs.FileMode {
	switch {
	case m.Type() == fs.ModeSymlink:
		return fs.ModeSymlink | 0o777
	case m.IsDir() || m&0o100 != 0:
		return m.Type() | 0o755
	}
	return m.Type() | 0o644
}

// put adds n at name ("." is the root). Missing parents are made; a directory
// merges with one that is there, anything else replaces what is there.
func (t *tree) put(name string, n *node) error {
	if name == "." {
		t.root.mode, t.root.uid, t.root.gid = n.mode, n.uid, n.gid
		return nil
	}
	parent := t.root
	parts := strings.Split(name, "/")
	for _, part := range parts[:len(parts)-1] {
		child := parent.children[part]
		if child == nil {
			child = newDir(0o755)
			parent.children[part] = child
		}
		if !child.mode.IsDir() {
			return fmt.Errorf("rootfs: put %s: %w: %s is no directory", name, errConflict, part)
		}
		parent = child
	}
	last := parts[len(parts)-1]
	old := parent.children[last]
	switch {
	case old == nil || old.mode.IsDir() == n.mode.IsDir():
	default:
		return fmt.Errorf("rootfs: put %s: %w: directory and file", name, errConflict)
	}
	if old != nil && n.mode.IsDir() {
		old.mode, old.uid, old.gid = n.mode, n.uid, n.gid
		return nil
	}
	parent.children[last] = n
	return nil
}

// dir, file and symlink add what no layer has.
func (t *tree) dir(name string, perm fs.FileMode, uid, gid uint32) error {
	n := newDir(perm)
	n.uid, n.gid = uid, gid
	return t.put(name, n)
}

func (t *tree) file(name string, perm fs.FileMode, data []byte) error {
	return t.put(name, &node{mode: perm, size: int64(len(data)), data: data})
}

func (t *tree) symlink(name, target string) error {
	return t.put(name, &node{mode: fs.ModeSymlink | 0o777, size: int64(len(target)), link: target})
}

// lookup finds a node without following links.
func (t *tree) lookup(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	n := t.root
	if name == "." {
		return n, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if n = n.children[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// Open implements fs.FS. Regular files open their source at the first read, so
// that a writer may hold one for each file of the tree.
func (t *tree) Open(name string) (fs.File, error) {
	n, err := t.lookup("open", name)
	if err != nil {
		return nil, err
	}
	return &treeFile{info: treeInfo{path.Base(name), n, t.mtime}}, nil
}

// Stat implements fs.StatFS.
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.lookup("stat", name)
	if err != nil {
		return nil, err
	}
	return treeInfo{path.Base(name), n, t.mtime}, nil
}

// ReadLink implements fs.ReadLinkFS.
func (t *tree) ReadLink(name string) (string, error) {
	n, err := t.lookup("readlink", name)
	if err != nil {
		return "", err
	}
	if n.mode.Type() != fs.ModeSymlink {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return n.link, nil
}

// Lstat implements fs.ReadLinkFS.
func (t *tree) Lstat(name string) (fs.FileInfo, error) { return t.Stat(name) }

// ReadDir implements fs.ReadDirFS; entries are sorted by name.
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.lookup("readdir", name)
	if err != nil {
		return nil, err
	}
	entries := make([]fs.DirEntry, 0, len(n.children))
	for child, c := range n.children {
		entries = append(entries, fs.FileInfoToDirEntry(treeInfo{child, c, t.mtime}))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// treeInfo is the fs.FileInfo of a node.
type treeInfo struct {
	name  string
	node  *node
	mtime time.Time
}

func (i treeInfo) Name() string       { return i.name }
func (i treeInfo) Size() int64        { return i.node.size }
func (i treeInfo) Mode() fs.FileMode  { return i.node.mode }
func (i treeInfo) ModTime() time.Time { return i.mtime }
func (i treeInfo) IsDir() bool        { return i.node.mode.IsDir() }

// Sys tells the EROFS writer owner, time and link count.
func (i treeInfo) Sys() any {
	links := 1
	if i.IsDir() {
		links = 2
		for _, c := range i.node.children {
			if c.mode.IsDir() {
				links++
			}
		}
	}
	return &erofs.Stat{UID: i.node.uid, GID: i.node.gid, Mtime: uint64(i.mtime.Unix()), Nlink: links}
}

// treeFile reads a regular file of a tree.
type treeFile struct {
	info treeInfo
	src  *os.File
	read int64
}

func (f *treeFile) Stat() (fs.FileInfo, error) { return f.info, nil }

// Read returns io.ErrUnexpectedEOF when the source is shorter than it was when
// its layer was added.
func (f *treeFile) Read(p []byte) (n int, err error) {
	size := f.info.node.size
	switch {
	case !f.info.node.mode.IsRegular():
		return 0, &fs.PathError{Op: "read", Path: f.info.name, Err: fs.ErrInvalid}
	case f.read == size:
		return 0, io.EOF
	case f.info.node.source == "":
		n = copy(p, f.info.node.data[f.read:])
	default:
		if f.src == nil {
			if f.src, err = os.Open(f.info.node.source); err != nil {
				return 0, fmt.Errorf("rootfs: open layer's file: %w", err)
			}
		}
		n, err = f.src.Read(p[:min(int64(len(p)), size-f.read)])
		if err == io.EOF {
			err = fmt.Errorf("rootfs: read %s: %w", f.info.node.source, io.ErrUnexpectedEOF)
		}
	}
	f.read += int64(n)
	return n, err
}

func (f *treeFile) Close() error {
	if f.src == nil {
		return nil
	}
	return f.src.Close()
}
