package jail

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Root is a mount namespace whose root is an empty file system, and which has no other. A process that is born from there with
// CLONE_NEWNS has a namespace of its own with a copy of that one mount: what would else have to be unmounted it never had, and
// the call that changes roots, which looks at every thread of the host, is made once. The file system cannot be written and
// has no room for a file; it belongs to the user namespace of the caller, as the mount's flags do.
type Root struct{ empty, home int } // descriptors of namespaces

// MakeRoot makes one. After an error that wraps [ErrAway] the caller must end.
func MakeRoot() (r Root, err error) {
	r = Root{empty: -1}
	if r.home, err = openNamespace("mnt"); err != nil {
		return r, err
	}
	// The thread has a root and a working directory of its own from then on.
	leave := func() error { return unix.Unshare(unix.CLONE_NEWNS) }
	err = away(r.home, unix.CLONE_NEWNS, leave, func() (err error) {
		if r.empty, err = openNamespace("mnt"); err != nil { // there is no /proc afterwards
			return err
		}
		return leaveRoot()
	})
	if err != nil {
		r.Close()
	}
	return r, err
}

// leaveRoot makes an empty root and lets go of the old one: pivot_root(2), with the trick of its last section, old and new root
// stacked on one mount point, so that no folder is needed. /proc exists on every host that could start us, and is covered in
// this namespace only.
func leaveRoot() error {
	for _, step := range []struct {
		name string
		run  func() error
	}{
		// Nothing that is mounted may travel to the host, and nothing of the host's to us.
		{"make mounts private", func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") }},
		{"mount empty file system", func() error {
			return unix.Mount("empty", "/proc", "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "size=4k,nr_inodes=1,mode=0555")
		}},
		{"enter new root", func() error { return unix.Chdir("/proc") }},
		{"pivot root", func() error { return unix.PivotRoot(".", ".") }},
		// This is what makes "opens nothing" true even without seccomp.
		{"detach old root", func() error { return unix.Unmount(".", unix.MNT_DETACH) }},
	} {
		if err := step.run(); err != nil {
			return fmt.Errorf("jail: %s: %w", step.name, err)
		}
	}
	return nil
}

// visit calls do on a thread whose root this is.
func (r Root) visit(do func() error) error {
	return away(r.home, unix.CLONE_NEWNS, func() error {
		// Threads share root and working directory, and one that does may not change its mount namespace.
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return err
		}
		return unix.Setns(r.empty, unix.CLONE_NEWNS)
	}, do)
}

// Close lets go of it.
func (r Root) Close() {
	unix.Close(r.empty) // cannot fail but for a number that is none
	unix.Close(r.home)
}
