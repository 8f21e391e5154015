package main

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"thaw/lab/labproto"
)

// mount is one line of what a host has mounted.
type mount struct {
	source, target, fstype string
	flags                  uintptr
	data                   string
	// optional: a kernel without this file system still makes a lab.
	optional bool
}

func (m mount) do(root string) error {
	target := filepath.Join(root, m.target)
	if err := os.MkdirAll(target, 0o755); err != nil && !m.optional {
		return fmt.Errorf("labinit: make mount point: %w", err)
	}
	err := unix.Mount(m.source, target, m.fstype, m.flags, m.data)
	if err != nil && !m.optional {
		return fmt.Errorf("labinit: mount %s on %s: %w", m.fstype, target, err)
	}
	return nil
}

const noExec = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC

// upperMount is where the tmpfs of the overlay lies until the root has moved. On
// the host's read-only tree no folder can be made for it, and this one, empty
// without sysfs, is on every Linux root and hides no file that is still needed.
const upperMount = "/sys"

// mountEarly mounts what is needed before the overlay exists. Its mount points
// are on the host's tree, which is read only: every Linux root has them.
func mountEarly() error {
	for _, m := range []mount{
		{source: "proc", target: "/proc", fstype: "proc", flags: noExec},
		{source: "devtmpfs", target: "/dev", fstype: "devtmpfs", flags: unix.MS_NOSUID},
		{source: "tmpfs", target: upperMount, fstype: "tmpfs", data: "size=90%,mode=755"},
	} {
		if err := m.do("/"); err != nil {
			return err
		}
	}
	return openConsole()
}

// openConsole gives PID 1 its standard streams: the host's /dev, where the
// kernel looked for a console, is not the lab's.
func openConsole() error {
	fd, err := unix.Open("/dev/console", unix.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("labinit: open console: %w", err)
	}
	for i := range 3 {
		if err := unix.Dup3(fd, i, 0); err != nil && fd != i {
			return fmt.Errorf("labinit: set up stream %d: %w", i, err)
		}
	}
	if fd > 2 {
		unix.Close(fd)
	}
	return nil
}

// enterOverlay makes the root writable without writing the host: its tree is
// the lower layer, and a tmpfs takes every change.
func enterOverlay(cfg labproto.Config) error {
	if err := modprobe(cfg, "overlay"); err != nil {
		return err
	}
	const upper, work, merged = upperMount + "/upper", upperMount + "/work", upperMount + "/root"
	for _, d := range []string{upper, work, merged} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return fmt.Errorf("labinit: make overlay: %w", err)
		}
	}
	err := mount{source: "overlay", target: merged, fstype: "overlay",
		data: "lowerdir=/,upperdir=" + upper + ",workdir=" + work}.do("/")
	if err != nil {
		return err
	}
	for _, m := range []string{"/proc", "/dev"} {
		if err := unix.Mount(m, merged+m, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("labinit: move %s: %w", m, err)
		}
	}
	if err := os.Chdir(merged); err != nil {
		return fmt.Errorf("labinit: enter overlay: %w", err)
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("labinit: move root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("labinit: change root: %w", err)
	}
	return os.Chdir("/")
}

// mountRest mounts what a host has besides, and the writable shares.
func mountRest(cfg labproto.Config) error {
	mounts := []mount{
		{source: "sysfs", target: "/sys", fstype: "sysfs", flags: noExec},
		{source: "cgroup2", target: "/sys/fs/cgroup", fstype: "cgroup2", flags: noExec, data: "nsdelegate"},
		{source: "bpf", target: "/sys/fs/bpf", fstype: "bpf", flags: noExec, data: "mode=700"},
		{source: "tracefs", target: "/sys/kernel/tracing", fstype: "tracefs", flags: noExec, optional: true},
		{source: "debugfs", target: "/sys/kernel/debug", fstype: "debugfs", flags: noExec, optional: true},
		{source: "securityfs", target: "/sys/kernel/security", fstype: "securityfs", flags: noExec, optional: true},
		{source: "devpts", target: "/dev/pts", fstype: "devpts", flags: unix.MS_NOSUID | unix.MS_NOEXEC, data: "mode=620,gid=5,ptmxmode=666"},
		{source: "tmpfs", target: "/dev/shm", fstype: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=1777"},
		{source: "mqueue", target: "/dev/mqueue", fstype: "mqueue", flags: noExec, optional: true},
		{source: "tmpfs", target: "/run", fstype: "tmpfs", flags: unix.MS_NOSUID | unix.MS_NODEV, data: "mode=755"},
	}
	for _, s := range cfg.Shares {
		mounts = append(mounts, mount{source: s.Tag, target: s.Path, fstype: "virtiofs"})
	}
	for _, m := range mounts {
		if err := m.do("/"); err != nil {
			return err
		}
	}
	for link, to := range map[string]string{
		"/dev/fd": "/proc/self/fd", "/dev/stdin": "/proc/self/fd/0",
		"/dev/stdout": "/proc/self/fd/1", "/dev/stderr": "/proc/self/fd/2",
	} {
		if err := os.Symlink(to, link); err != nil && !os.IsExist(err) {
			return fmt.Errorf("labinit: link %s: %w", link, err)
		}
	}
	return nil
}
