package workspace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
	"thaw/internal/kvmtest"
)

// tree opens a directory with a file beside it that must not be reached.
func tree(t *testing.T) (tr *Tree, dir string) {
	t.Helper()
	base := t.TempDir()
	dir = filepath.Join(base, "workspace")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "secret"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	tr, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	return tr, dir
}

func put(tr *Tree, name, content string, size int64) error {
	r, err := tr.Receive(agentproto.PutRequest{Path: name, Mode: 0o640, Size: size})
	if err != nil {
		return err
	}
	defer r.Abort()
	if err := r.Write([]byte(content)); err != nil {
		return err
	}
	return r.Commit()
}

func TestReceive(t *testing.T) {
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "not root: files cannot be given to jobs")
	}
	tr, dir := tree(t)
	if err := put(tr, "a/b/c", "12345", 5); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "a/b/c"), &st); err != nil || st.Uid != agentproto.DefaultID || st.Mode&0o7777 != 0o640 {
		t.Errorf("uid %d, mode %o, %v", st.Uid, st.Mode, err)
	}
	for _, size := range []int64{4, 6} {
		if err := put(tr, "a/b/c", "12345", size); !errors.Is(err, agentproto.ErrBadRequest) {
			t.Errorf("announced %d: %v", size, err)
		}
	}
	f, info, err := tr.Open("a/b/c")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if b, err := io.ReadAll(f); string(b) != "12345" || err != nil || info.Size != 5 || info.Type != agentproto.TypeFile {
		t.Errorf("%q, %+v, %v", b, info, err)
	}
	// Nothing is left of those that failed.
	if names, _ := os.ReadDir(filepath.Join(dir, "a/b")); len(names) != 1 {
		t.Errorf("files %v", names)
	}
	if !HasFileOfSize([]string{dir}, 5, time.Now().Add(-time.Minute)) || HasFileOfSize([]string{dir}, 6, time.Now().Add(-time.Minute)) {
		t.Error("size is not found, or another is")
	}
}

// Links of the job's, to a file, a directory, a magic link, lead nowhere.
func TestLinksAreNotFollowed(t *testing.T) {
	tr, dir := tree(t)
	for name, target := range map[string]string{"file": "../secret", "dir": "..", "root": "/", "magic": "/proc/self/root"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"file", "dir/secret", "../secret", "root/etc/passwd", "magic/etc/passwd", "fifo", "."} {
		if f, _, err := tr.Open(name); err == nil {
			f.Close()
			t.Errorf("opened %q", name)
		}
	}
	for _, name := range []string{"dir/x", "root/tmp/x", "magic/tmp/x"} {
		if err := put(tr, name, "x", 1); err == nil {
			t.Errorf("wrote %q", name)
		}
		if _, err := tr.Walk(filepath.Dir(name), 10, 1, func(agentproto.FileInfo) error { return nil }); err == nil {
			t.Errorf("listed %q", filepath.Dir(name))
		}
	}
}

// A directory is made once, for the job, and is empty until something is in it; what is no directory is neither.
func TestMakeDirAndEmpty(t *testing.T) {
	if os.Geteuid() != 0 {
		kvmtest.Unavailable(t, "not root: files cannot be given to jobs")
	}
	tr, dir := tree(t)
	if tr.Empty("a/out") {
		t.Error("a missing directory is empty")
	}
	for range 2 {
		if err := tr.MakeDir("a/out"); err != nil {
			t.Fatal(err)
		}
		if !tr.Empty("a/out") {
			t.Error("a new directory is not empty")
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(dir, "a/out"), &st); err != nil || st.Uid != agentproto.DefaultID || st.Mode != unix.S_IFDIR|0o755 {
		t.Errorf("uid %d, mode %o, %v", st.Uid, st.Mode, err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "a/out/x")); err != nil {
		t.Fatal(err)
	}
	if tr.Empty("a/out") {
		t.Error("a directory with a link in it is empty")
	}
	for _, bad := range []string{"a/out/x", "a/out/x/y"} {
		if err := tr.MakeDir(bad); err == nil || tr.Empty(bad) {
			t.Errorf("%s: made, or empty, through a link: %v", bad, err)
		}
	}
}

func TestWalkIsBounded(t *testing.T) {
	tr, dir := tree(t)
	if err := os.MkdirAll(filepath.Join(dir, "a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir       string
		max       int64
		depth     int
		entries   int
		truncated string
	}{
		{"", 10, 10, 3, ""}, {"a", 10, 10, 2, ""}, {".", 2, 10, 2, "count"}, {".", 10, 1, 1, "depth"},
	} {
		n := 0
		truncated, err := tr.Walk(c.dir, c.max, c.depth, func(agentproto.FileInfo) error { n++; return nil })
		if err != nil || n != c.entries || truncated != c.truncated {
			t.Errorf("%+v: %d entries, %q, %v", c, n, truncated, err)
		}
	}
	stop := errors.New("stop")
	if _, err := tr.Walk("", 10, 10, func(agentproto.FileInfo) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error is %v", err)
	}
}
