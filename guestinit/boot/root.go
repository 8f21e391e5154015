package boot

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"thaw/guestinit/cgroup"
	"thaw/guestinit/generation"
)

// composeRoot builds the root that jobs see below newRoot.
func composeRoot() error {
	layers := "lowerdir=" + lower + ",upperdir=" + writable + "/upper,workdir=" + writable + "/work"
	if err := mount("overlay", newRoot, "overlay", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, layers); err != nil {
		return err
	}
	for _, name := range []string{"workspace", "tmp"} {
		// A bind mount keeps the flags of the disk's own.
		if err := mount(writable+"/"+name, newRoot+"/"+name, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	// Jobs see their own processes only; PID 1 is not among them.
	if err := mount("proc", newRoot+"/proc", "proc", quiet, "hidepid=invisible"); err != nil {
		return err
	}
	if err := mount("sysfs", newRoot+"/sys", "sysfs", quiet|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	err := unix.Mount("cgroup2", newRoot+cgroup.Mount, "cgroup2", quiet, "nsdelegate,memory_recursiveprot")
	if err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	if err := composeRun(newRoot); err != nil {
		return err
	}
	return composeDev(newRoot + "/dev")
}

// composeRun makes the directory where jobs read what a generation sets, and
// has /etc/machine-id lead there.
func composeRun(root string) error {
	dir := root + generation.Dir
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := mount("thaw", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return err
	}
	id := root + "/etc/machine-id"
	if err := os.Remove(id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Symlink(generation.Dir+"/machine-id", id)
}

// composeDev makes a /dev of what programs expect and nothing else: the
// kernel's own also has the disks, vsock and the console.
func composeDev(dev string) error {
	if err := mount("dev", dev, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755,size=64k"); err != nil {
		return err
	}
	for _, n := range []struct {
		name         string
		major, minor uint32
	}{
		{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
	} {
		path := dev + "/" + n.name
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(unix.Mkdev(n.major, n.minor))); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := unix.Chmod(path, 0o666); err != nil { // mknod is subject to the umask
			return fmt.Errorf("make %s: %w", path, err)
		}
	}
	for _, l := range []struct{ name, target string }{
		{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
	} {
		if err := unix.Symlink(l.target, dev+"/"+l.name); err != nil {
			return fmt.Errorf("link %s: %w", l.name, err)
		}
	}
	const quiet = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mount("devpts", dev+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"); err != nil {
		return err
	}
	if err := mount("shm", dev+"/shm", "tmpfs", quiet&^unix.MS_NOEXEC, "mode=1777"); err != nil {
		return err
	}
	// Kernels without POSIX message queues exist.
	if err := mount("mqueue", dev+"/mqueue", "mqueue", quiet, ""); err != nil && !errors.Is(err, unix.ENODEV) {
		return err
	}
	return nil
}

// switchRoot makes newRoot the root. What the initramfs held is removed first
// to give its memory back; the running binary lives on without a name. The
// parts that the root was put together from lose their names as well: the
// root holds them.
func switchRoot() error {
	for _, path := range []string{"/init", modulesDir} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove %s: %w", path, err)
		}
	}
	for _, path := range []string{lower, writable, "/dev", "/proc", "/sys"} {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("detach %s: %w", path, err)
		}
	}
	if err := unix.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("move root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("change root: %w", err)
	}
	return unix.Chdir("/")
}
