package boot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"thaw/guestinit/agentproto"
)

// Where the parts of the root are put together, in the initramfs.
const (
	imageDevice    = "/dev/vda"
	writableDevice = "/dev/vdb"
	lower          = "/lower"
	writable       = "/rw"
	newRoot        = "/newroot"
)

// devicePatience bounds the wait for a device: drivers that are modules may
// find it only now.
const devicePatience = 3 * time.Second

// mountDisks mounts the image and the writable disk.
func mountDisks() error {
	for _, d := range []string{imageDevice, writableDevice} {
		if err := waitFor(d); err != nil {
			return fmt.Errorf("disk: %w", err)
		}
	}
	const common = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME
	if err := mount(imageDevice, lower, "erofs", common|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	// No lazy initialisation: its thread would write for minutes, and all of
	// it would count as changed in a checkpoint.
	options := "noinit_itable"
	quota, err := hasProjectQuota(writableDevice)
	if err != nil {
		return err
	}
	if quota {
		options += ",prjquota"
	}
	if err := mount(writableDevice, writable, "ext4", common, options); err != nil {
		return err
	}
	for _, d := range []struct {
		name string
		mode uint32
		id   int
	}{
		{"upper", 0o755, 0},
		{"work", 0o755, 0},
		{"workspace", 0o755, agentproto.DefaultID},
		{"tmp", 0o1777, 0},
	} {
		path := writable + "/" + d.name
		if err := unix.Mkdir(path, d.mode); err != nil {
			if errors.Is(err, unix.EEXIST) { // a disk that was used before
				continue
			}
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := unix.Chmod(path, d.mode); err != nil { // mkdir is subject to the umask
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := unix.Chown(path, d.id, d.id); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
	}
	return nil
}

func mount(source, target, fsType string, flags uintptr, data string) error {
	if err := unix.Mkdir(target, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", target, err)
	}
	if err := unix.Mount(source, target, fsType, flags, data); err != nil {
		return fmt.Errorf("mount %s (%s) on %s: %w", source, fsType, target, err)
	}
	return nil
}

// waitFor waits for the file that shows that a device is there.
func waitFor(path string) error {
	for end := time.Now().Add(devicePatience); ; time.Sleep(time.Millisecond) {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("no %s after %v: %w", path, devicePatience, err)
		}
	}
}

// hasProjectQuota reads from the superblock whether ext4 keeps quotas by
// project; mounting with the option fails where it does not.
// (Documentation/filesystems/ext4/super.rst: s_magic at 0x38,
// s_feature_ro_compat at 0x64.)
func hasProjectQuota(device string) (bool, error) {
	const (
		superblock = 1024
		magic      = 0xef53
		quota      = 0x100
		project    = 0x2000
	)
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	var sb [0x68]byte
	if _, err := f.ReadAt(sb[:], superblock); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return false, fmt.Errorf("read superblock of %s: %w", device, err)
	}
	if binary.LittleEndian.Uint16(sb[0x38:]) != magic {
		return false, fmt.Errorf("%s holds no ext4 file system", device)
	}
	features := binary.LittleEndian.Uint32(sb[0x64:])
	return features&(quota|project) == quota|project, nil
}
