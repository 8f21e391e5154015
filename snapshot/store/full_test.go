package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/snapshot/durable"
)

// smallDisk mounts a file system of a few megabytes.
func smallDisk(t *testing.T, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("store-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("no file system of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The disk is full at any point of any operation: the error says so, nothing is left of
// the operation, its space is given back, and it works once there is room.
func TestDiskFull(t *testing.T) {
	const size = 48 << 20
	for op, want := range crashOps {
		t.Run(op, func(t *testing.T) {
			root := smallDisk(t, size)
			k := crashStart(t, root)
			s, err := Open(Options{Root: root, Folder: testFolder{}})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { s.Close() }()
			refused := 0
			for room := int64(0); ; room += max(page, room/8/page*page) {
				free, err := durable.Free(root)
				if err != nil {
					t.Fatal(err)
				}
				ballast := filepath.Join(root, "ballast")
				f, err := os.Create(ballast)
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, free-room), f.Close()); err != nil {
					t.Fatal(err)
				}
				err = want.run(t, s, k.ids)
				if e := os.Remove(ballast); e != nil {
					t.Fatal(e)
				}
				if err == nil {
					break
				}
				if refused++; !errors.Is(err, ErrNoSpace) {
					t.Fatalf("%d bytes of room: %v", room, err)
				}
				if now, err := durable.Free(root); err != nil || now != free {
					t.Fatalf("%d bytes of room: %d bytes were not given back", room, free-now)
				}
				clean(t, s)
			}
			if refused == 0 && op != "delete" {
				t.Error("it never wanted any room")
			}
			s.Close()
			if n := judgeCrash(t, root, k); n != want.after {
				t.Errorf("%d snapshots, not %d", n, want.after)
			}
		})
	}
}

// A chain whose disks have to be folded on a full disk can be restored later.
func TestFoldOnAFullDisk(t *testing.T) {
	root := smallDisk(t, 48<<20)
	s := open(t, root)
	m := newMachine(t, 3)
	id := m.mustSave(s, "")
	for range 40 {
		m.run()
		id = m.mustSave(s, id)
	}
	free, err := durable.Free(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(root, "ballast"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, free); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Resolve(context.Background(), id); !errors.Is(err, ErrNoSpace) {
		t.Errorf("%v", err)
	}
	clean(t, s)
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if got := top(t, s, id); got != string(m.disk) {
		t.Errorf("%q, not %q", got, m.disk)
	}
	s.Close()
	if now, err := durable.Free(root); err != nil || now < free {
		t.Errorf("%d bytes are still taken, %v", free-now, err)
	}
}
