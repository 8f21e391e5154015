package rootfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/erofs/go-erofs"
)

var testTime = time.Unix(1764374400, 0)

// writeLayer makes files below a new folder: name → content; a name that ends
// in "/" is a folder, a content that starts with "→" a symbolic link.
func writeLayer(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch target, isLink := bytes.CutPrefix([]byte(content), []byte("→")); {
		case name[len(name)-1] == '/':
			err = os.MkdirAll(p, 0o755)
		case isLink:
			err = os.Symlink(string(target), p)
		default:
			err = os.WriteFile(p, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// sampleTree is a tree of two layers with every kind of file that an image has.
func sampleTree(t *testing.T) *tree {
	t.Helper()
	big := bytes.Repeat([]byte("0123456789abcdef"), 3000) // more than fits beside an inode
	below := writeLayer(t, map[string]string{"bin/sh": "#!", "lib": "→usr/lib", "usr/lib/big": string(big), "etc/passwd": "root", "empty/": ""})
	above := writeLayer(t, map[string]string{"etc/passwd": "root and job", "usr/lib/more": "more"})
	if err := os.Chmod(filepath.Join(below, "bin/sh"), 0o755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(below, "usr/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	tr := newTree(testTime)
	for _, dir := range []string{below, above} {
		if err := tr.addLayer(dir, keepMode); err != nil {
			t.Fatal(err)
		}
	}
	if err := tr.dir("workspace", 0o755, 10001, 10001); err != nil {
		t.Fatal(err)
	}
	if err := tr.dir("tmp", fs.ModeSticky|0o777, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := tr.file("etc/thaw/image.json", 0o644, []byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	return tr
}

func TestTreeIsAFileSystem(t *testing.T) {
	tr := sampleTree(t)
	if err := fstest.TestFS(regularOnly{tr}, "bin/sh", "etc/passwd", "usr/lib/big", "etc/thaw/image.json"); err != nil {
		t.Fatal(err)
	}
}

// regularOnly hides links, which fstest would follow.
type regularOnly struct{ *tree }

func (r regularOnly) ReadDir(name string) ([]fs.DirEntry, error) {
	all, err := r.tree.ReadDir(name)
	var kept []fs.DirEntry
	for _, e := range all {
		if e.Type() != fs.ModeSymlink {
			kept = append(kept, e)
		}
	}
	return kept, err
}

func (r regularOnly) Open(name string) (fs.File, error) {
	f, err := r.tree.Open(name)
	if err != nil {
		return nil, err
	}
	if st, _ := f.Stat(); st.IsDir() {
		return &listing{File: f, fsys: r, name: name}, nil
	}
	return f, nil
}

// listing is an open directory.
type listing struct {
	fs.File
	fsys regularOnly
	name string
	left []fs.DirEntry
	read bool
}

func (l *listing) ReadDir(n int) ([]fs.DirEntry, error) {
	if !l.read {
		l.left, _ = l.fsys.ReadDir(l.name)
		l.read = true
	}
	if n <= 0 {
		all := l.left
		l.left = nil
		return all, nil
	}
	if len(l.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(l.left))
	some := l.left[:n]
	l.left = l.left[n:]
	return some, nil
}

func TestTreeConflicts(t *testing.T) {
	tests := []struct {
		name         string
		below, above map[string]string
	}{
		{"folder over link", map[string]string{"lib": "→usr/lib"}, map[string]string{"lib/": ""}},
		{"file under link", map[string]string{"lib": "→usr/lib"}, map[string]string{"lib/x": "x"}},
		{"file over folder", map[string]string{"lib/": ""}, map[string]string{"lib": "x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tr := newTree(testTime)
			if err := tr.addLayer(writeLayer(t, tt.below), keepMode); err != nil {
				t.Fatal(err)
			}
			if err := tr.addLayer(writeLayer(t, tt.above), keepMode); !errors.Is(err, errConflict) {
				t.Fatalf("err = %v, want %v", err, errConflict)
			}
		})
	}
}

func TestModes(t *testing.T) {
	tests := []struct{ in, keep, plain fs.FileMode }{
		{0o600, 0o600, 0o644},
		{0o700, 0o700, 0o755},
		{fs.ModeSetuid | 0o755, 0o755, 0o755},
		{fs.ModeDir | fs.ModeSetgid | 0o770, fs.ModeDir | 0o770, fs.ModeDir | 0o755},
		{fs.ModeDir | fs.ModeSticky | 0o777, fs.ModeDir | fs.ModeSticky | 0o777, fs.ModeDir | 0o755},
		{fs.ModeSymlink | 0o755, fs.ModeSymlink | 0o777, fs.ModeSymlink | 0o777},
	}
	for _, tt := range tests {
		if got := keepMode(tt.in); got != tt.keep {
			t.Errorf("keepMode(%v) = %v, want %v", tt.in, got, tt.keep)
		}
		if got := plainMode(tt.in); got != tt.plain {
			t.Errorf("plainMode(%v) = %v, want %v", tt.in, got, tt.plain)
		}
	}
}

func TestTreeFileThatShrank(t *testing.T) {
	dir := writeLayer(t, map[string]string{"a": "four"})
	tr := newTree(testTime)
	if err := tr.addLayer(dir, keepMode); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a"), []byte("3"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := fs.ReadFile(tr, "a"); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("err = %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

func TestEROFS(t *testing.T) {
	dir := t.TempDir()
	var sums []string
	for _, name := range []string{"a.erofs", "b.erofs"} {
		// A new tree each time: other folders, other inode numbers, other times.
		sum, size, err := writeEROFS(sampleTree(t), filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if size%4096 != 0 {
			t.Errorf("size %d is not whole blocks", size)
		}
		sums = append(sums, sum)
	}
	if sums[0] != sums[1] {
		t.Fatalf("two images of one tree differ: %s, %s", sums[0], sums[1])
	}
	f, err := os.Open(filepath.Join(dir, "a.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	image, err := erofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		mode fs.FileMode
		uid  uint32
		size int64
		link int
	}{
		"bin/sh":      {0o755, 0, 2, 1}, // no set-user-id bit
		"etc/passwd":  {0o644, 0, 12, 1},
		"usr/lib/big": {0o644, 0, 48000, 1},
		"workspace":   {fs.ModeDir | 0o755, 10001, -1, 2},
		"tmp":         {fs.ModeDir | fs.ModeSticky | 0o777, 0, -1, 2},
		"usr":         {fs.ModeDir | 0o755, 0, -1, 3},
	} {
		st, err := fs.Stat(image, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		sys := st.Sys().(*erofs.Stat)
		if sys.Mode != want.mode || sys.UID != want.uid || sys.GID != want.uid || sys.Nlink != want.link {
			t.Errorf("%s: %v %d:%d links %d, want %+v", name, sys.Mode, sys.UID, sys.GID, sys.Nlink, want)
		}
		if want.size >= 0 && st.Size() != want.size {
			t.Errorf("%s: %d bytes, want %d", name, st.Size(), want.size)
		}
		if !st.ModTime().Equal(testTime) {
			t.Errorf("%s: time %v, want %v", name, st.ModTime(), testTime)
		}
	}
	if _, err := fs.Stat(image, "usr/fifo"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("pipe: %v, want it left out", err)
	}
	if content, err := fs.ReadFile(image, "etc/passwd"); string(content) != "root and job" {
		t.Errorf("etc/passwd = %q, %v: want the upper layer's", content, err)
	}
	if target, err := fs.ReadLink(image, "lib"); target != "usr/lib" {
		t.Errorf("lib → %q, %v", target, err)
	}
}
