package workspace

import (
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// AddUsage adds the disk use. With a project quota on it, statfs tells the
// quota's numbers.
func (t *Tree) AddUsage(u *agentproto.Usage) {
	var st unix.Statfs_t
	if unix.Fstatfs(int(t.root.Fd()), &st) != nil {
		return
	}
	u.DiskTotal = int64(st.Blocks) * st.Bsize
	u.DiskFree = int64(st.Bavail) * st.Bsize
	u.DiskUsed = int64(st.Blocks-st.Bfree) * st.Bsize
}

// fullBelow: a disk with less than this left is called full; a file system
// never gives out its last blocks evenly.
const fullBelow = 64 << 10

// Full reports whether one of the disks at the paths has no space or no inode
// left.
func Full(disks []string) bool {
	for _, path := range disks {
		var st unix.Statfs_t
		if unix.Statfs(path, &st) != nil {
			continue
		}
		if int64(st.Bavail)*st.Bsize < fullBelow || st.Files > 0 && st.Ffree == 0 {
			return true
		}
	}
	return false
}

// HasFileOfSize looks for a regular file of exactly the limit's size that was
// written since the exec began: the trace of a program that ignores SIGXFSZ
// (Python does) and failed with EFBIG. It is bounded, since the tree is the
// job's.
func HasFileOfSize(roots []string, size int64, since time.Time) bool {
	const maxEntries = 4096
	since = since.Add(-50 * time.Millisecond) // file times come from a clock that ticks slowly
	seen, found := 0, false
	for _, root := range roots {
		_ = filepath.WalkDir(root, func(_ string, d os.DirEntry, err error) error {
			if seen++; seen > maxEntries || found {
				return filepath.SkipAll
			}
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			if info, err := d.Info(); err == nil {
				found = info.Size() == size && !info.ModTime().Before(since)
			}
			return nil
		})
	}
	return found
}
