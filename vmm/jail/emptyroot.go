package jail

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Root is a mount namespace whose root is an empty file system, and which has no other. A process that is born from there with
// CLONE_NEWNS has a namespace of its own with a copy of that one mount: what would else have to be unmounted it never had, and
// the call that changes roots, which looks at every thread of the host, is made once. The file system cannot be written and
// has no room for a file; it belongs to the user namespace of the caller, as the mount's flags do.
type Root struct{ empty, home int } // descriptors of namespaces

// MakeRoot makes one. After an error that wraps [ErrAway] the caller must end.
func MakeRoot() (r Root, err error) {
	runtime.LockOSThread()
	r = Root{empty: -1}
	if r.home, err = openMounts(); err != nil {
		runtime.UnlockOSThread()
		return r, err
	}
	// From here on the thread has a root and a working directory of its own.
	if err = unix.Unshare(unix.CLONE_NEWNS); err != nil {
		runtime.UnlockOSThread()
		unix.Close(r.home)
		return r, fmt.Errorf("jail: make mount namespace: %w", err)
	}
	if r.empty, err = openMounts(); err == nil { // there is no /proc afterwards
		err = leaveRoot()
	}
	if err = r.comeHome(err); err != nil {
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
	runtime.LockOSThread()
	// Threads share root and working directory, and one that does may not change its mount namespace.
	err := unix.Unshare(unix.CLONE_FS)
	if err == nil {
		err = unix.Setns(r.empty, unix.CLONE_NEWNS)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("jail: change mount namespace: %w", err)
	}
	return r.comeHome(do())
}

// comeHome brings the thread back, as away does, and returns err if it could.
func (r Root) comeHome(err error) error {
	if back := unix.Setns(r.home, unix.CLONE_NEWNS); back != nil {
		return fmt.Errorf("jail: change mount namespace back: %w: %w", ErrAway, back)
	}
	runtime.UnlockOSThread()
	return err
}

// openMounts opens the mount namespace of the calling thread.
func openMounts() (int, error) {
	fd, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("jail: open mount namespace: %w", err)
	}
	return fd, nil
}

// Close lets go of it.
func (r Root) Close() {
	unix.Close(r.empty) // cannot fail but for a number that is none
	unix.Close(r.home)
}
