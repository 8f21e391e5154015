package jail

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// FirstFile is the first descriptor number that the parent does not pass on purpose: 0 to 2 are the standard
// ones, 3 is the control socket.
const FirstFile = 4

// CloseInherited closes every descriptor from [FirstFile] on. Descriptor 4 is our own binary, opened by the
// parent so that it can be run from a folder that our user id cannot enter; others would be leaks of the daemon.
//
// Preconditions: first thing in main, while the Go runtime has opened none of its own (it opens the poller's at the
// first use; with GOMAXPROCS in the environment it never reads its cgroup files again).
func CloseInherited() error {
	if err := unix.CloseRange(FirstFile, math.MaxUint32, 0); err != nil {
		return fmt.Errorf("jail: close inherited descriptors: %w", err)
	}
	return nil
}

// emptyRoot replaces the root by an empty read-only file system and lets go of the old one (pivot_root(2), with
// the trick of its last section: old and new root stacked on one mount point, so that no folder is needed).
func emptyRoot(Options) error {
	// Nothing that we mount may travel to the host, and nothing of the host's to us.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	// /proc is a folder that exists on every host that could start us; it is covered in our namespace only.
	const at = "/proc"
	flags := uintptr(unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if err := unix.Mount("empty", at, "tmpfs", flags, "size=4k,nr_inodes=1,mode=0555"); err != nil {
		return fmt.Errorf("mount empty file system: %w", err)
	}
	if err := unix.Chdir(at); err != nil {
		return fmt.Errorf("enter new root: %w", err)
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("enter root: %w", err)
	}
	return nil
}

func setHostname(o Options) error {
	if err := unix.Sethostname([]byte(o.Hostname)); err != nil {
		return err
	}
	return unix.Setdomainname(nil)
}
