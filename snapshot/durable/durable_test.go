package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/snapshot/layer"
)

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteFile(path, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, nil); !errors.Is(err, os.ErrExist) {
		t.Errorf("written twice: %v", err)
	}
	if err := SyncDir(dir); err != nil {
		t.Error(err)
	}
	if b, err := ReadBounded(path, 5); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := ReadBounded(path, 4); !errors.Is(err, layer.ErrDamaged) {
		t.Error(err)
	}
	if FolderUse(dir) < 5 {
		t.Error("the folder takes nothing")
	}
	if free, err := Free(dir); err != nil || free <= 0 {
		t.Error(free, err)
	}
}

// What is not a regular file is refused, and opening it does not hang.
func TestOpenRegularRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.Symlink("/etc/passwd", at("link")), unix.Mkfifo(at("fifo"), 0o600), os.Mkdir(at("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "fifo", "folder", "missing"} {
		if f, err := OpenRegular(at(name)); !errors.Is(err, layer.ErrDamaged) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

func TestFull(t *testing.T) {
	for _, e := range []error{unix.ENOSPC, unix.EDQUOT} {
		if err := Full(fmt.Errorf("write: %w", e)); !errors.Is(err, ErrNoSpace) || !errors.Is(err, e) {
			t.Error(err)
		}
	}
	if err := Full(unix.EIO); errors.Is(err, ErrNoSpace) {
		t.Error(err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
	f.Close()
	if f, err = Lock(path); err != nil {
		t.Fatal(err)
	}
	f.Close()
}
