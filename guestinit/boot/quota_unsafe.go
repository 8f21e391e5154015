package boot

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fsxattr is struct fsxattr of include/uapi/linux/fs.h.
type fsxattr struct {
	XFlags, ExtSize, NExtents, ProjID, CowExtSize uint32
	_                                             [8]byte
}

// dqblk is struct if_dqblk of include/uapi/linux/quota.h.
type dqblk struct {
	BHardLimit, BSoftLimit, CurSpace  uint64
	IHardLimit, ISoftLimit, CurInodes uint64
	BTime, ITime                      uint64
	Valid                             uint32
	_                                 uint32
}

const (
	fsIocFsGetXattr  = 0x801c581f // FS_IOC_FSGETXATTR
	fsIocFsSetXattr  = 0x401c5820 // FS_IOC_FSSETXATTR
	xflagProjInherit = 0x200      // FS_XFLAG_PROJINHERIT
	qSetQuota        = 0x800008   // Q_SETQUOTA
	projectQuota     = 2          // PRJQUOTA
	validBLimits     = 1          // QIF_BLIMITS
	quotaBlock       = 1024       // unit of the limits, whatever the file system's
)

// limitTree puts the directory, and all that is made below it, into a project
// of at most limit bytes.
func limitTree(device, dir string, project uint32, limit uint64) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var attr fsxattr
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFsGetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
		return fmt.Errorf("get project: %w", errno)
	}
	attr.ProjID, attr.XFlags = project, attr.XFlags|xflagProjInherit
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), fsIocFsSetXattr, uintptr(unsafe.Pointer(&attr))); errno != 0 {
		return fmt.Errorf("set project: %w", errno)
	}
	special, err := unix.BytePtrFromString(device)
	if err != nil {
		return err
	}
	q := dqblk{BHardLimit: max(limit/quotaBlock, 1), Valid: validBLimits}
	cmd := uintptr(qSetQuota<<8 | projectQuota) // QCMD
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, cmd, uintptr(unsafe.Pointer(special)), uintptr(project), uintptr(unsafe.Pointer(&q)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("set quota: %w", errno)
	}
	return nil
}
