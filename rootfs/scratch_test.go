package rootfs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"thaw/internal/kvmtest"
)

func TestScratchSize(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, size := range []int64{-1, 0, 1, MinScratch - ScratchUnit, MinScratch + 1, MaxScratch + ScratchUnit, 1 << 62} {
		if _, err := Scratch(context.Background(), size); !errors.Is(err, ErrScratchSize) {
			t.Errorf("%d bytes: err = %v, want %v", size, err, ErrScratchSize)
		}
	}
}

func TestScratch(t *testing.T) {
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		kvmtest.Unavailable(t, "no mkfs.ext4")
	}
	for _, size := range []int64{MinScratch, 1 << 30, MaxScratch} {
		var first []byte
		for range 2 {
			t.Setenv("XDG_CACHE_HOME", t.TempDir())
			path, err := Scratch(context.Background(), size)
			if err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if st.Size() != size {
				t.Errorf("file has %d bytes, want %d", st.Size(), size)
			}
			if used := st.Sys().(*syscall.Stat_t).Blocks * 512; used > 2<<20 {
				t.Errorf("%d bytes on disk for a size of %d: not sparse", used, size)
			}
			head := readHead(t, path)
			if first != nil && !bytes.Equal(first, head) {
				t.Error("two templates of one size differ")
			}
			first = head
			checkSuperblock(t, head[1024:])
			if out, err := exec.Command("e2fsck", "-fn", path).CombinedOutput(); err != nil {
				t.Errorf("e2fsck: %v: %s", err, out)
			}
		}
	}
}

// readHead returns the first 8 MiB: superblock, group descriptors, bitmaps and
// the first inodes.
func readHead(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	head := make([]byte, 8<<20)
	if _, err := f.ReadAt(head, 0); err != nil {
		t.Fatal(err)
	}
	return head
}

// checkSuperblock looks at an ext4 superblock (Documentation/filesystems/ext4,
// "Super Block").
func checkSuperblock(t *testing.T, sb []byte) {
	t.Helper()
	le := binary.LittleEndian
	const (
		hasJournal = 0x4    // in compatible features
		quota      = 0x100  // in read-only compatible features
		project    = 0x2000 // likewise
	)
	if magic := le.Uint16(sb[0x38:]); magic != 0xEF53 {
		t.Fatalf("magic %#x", magic)
	}
	if log := le.Uint32(sb[0x18:]); log != 2 {
		t.Errorf("block size 1024<<%d, want 4096", log)
	}
	if f := le.Uint32(sb[0x5C:]); f&hasJournal != 0 {
		t.Error("has a journal")
	}
	if f := le.Uint32(sb[0x64:]); f&(quota|project) != quota|project {
		t.Errorf("read-only compatible features %#x lack quota or project", f)
	}
	if inode := le.Uint32(sb[0x26C:]); inode == 0 {
		t.Error("no inode for project quota")
	}
	if reserved := le.Uint32(sb[0x8:]); reserved != 0 {
		t.Errorf("%d blocks reserved for root", reserved)
	}
}
