package boot

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mountEarly mounts what the next steps read and write.
func mountEarly() error {
	for _, m := range []struct {
		fsType, target string
		flags          uintptr
	}{
		{"devtmpfs", "/dev", unix.MS_NOSUID},
		{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.fsType, m.target, m.fsType, m.flags, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	return nil
}

// openConsole gives descriptors 0 to 2 to the console where the kernel did
// not: it does if the initramfs has /dev/console.
func openConsole() error {
	unix.Umask(0o022)
	var st unix.Stat_t
	if unix.Fstat(2, &st) == nil {
		return nil
	}
	fd, err := unix.Open("/dev/console", unix.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	for i := range 3 {
		if fd == i {
			continue
		}
		if err := unix.Dup3(fd, i, 0); err != nil {
			return err
		}
	}
	if fd > 2 {
		return unix.Close(fd)
	}
	return nil
}

// modulesDir holds what a kernel without built-in drivers needs.
const modulesDir = "/modules"

// loadModules loads the modules that /modules/order names, in its order. A
// tuned kernel has none, and then there is no such file.
func loadModules() error {
	f, err := os.Open(filepath.Join(modulesDir, "order"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name := strings.TrimSpace(lines.Text())
		if name == "" {
			continue
		}
		if err := loadModule(filepath.Join(modulesDir, filepath.Base(name))); err != nil {
			return fmt.Errorf("load %s: %w", name, err)
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	// EEXIST: built into this kernel, or loaded on behalf of another.
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
