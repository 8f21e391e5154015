package uffd

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// UserModeOnly makes a descriptor for this process's memory that has faults of its own
// code delivered and none of the kernel's (UFFD_USER_MODE_ONLY of userfaultfd(2), Linux 5.11),
// so that any process may have one, without a Device. It serves [FD.Copy]. Errors:
// ErrNotSupported.
func UserModeOnly() (*FD, error) {
	fd, err := newDescriptor(unix.O_CLOEXEC | unix.O_NONBLOCK | userModeOnly)
	if err != nil {
		return nil, fmt.Errorf("uffd: make descriptor: %w", unsupported(err))
	}
	u, err := Use(fd, 0)
	if err != nil {
		unix.Close(fd)
	}
	return u, err
}

// RegisterMissing prepares whole mappings for Copy. Until Unregister or Close a thread that
// touches a page of them that is not there waits. Errors: ErrNotSupported for a file on a disk.
func (u *FD) RegisterMissing(r Range) error {
	arg := register{r: r, mode: registerMissing}
	if err := ioctl(u.fd, requestRegister, &arg); err != nil {
		return fmt.Errorf("uffd: register %d bytes for missing pages: %w", r.Length, unsupported(err))
	}
	return nil
}

// Copy makes whole pages of dst, none of which is there, copies of those of src, which may
// be any memory (UFFDIO_COPY of ioctl_userfaultfd(2)). In a private mapping of a file they are
// the process's own, and the file's are not looked at. Errors: EEXIST where the first page is
// there already, EAGAIN where a later one is or another thread changes mappings; pages before
// that one may have been made.
func (u *FD) Copy(dst, src []byte) error {
	if len(dst) != len(src) {
		return errors.New("uffd: copy: source and destination differ in length")
	}
	to, from := Of(dst), Of(src)
	arg := copying{to: to.Start, from: from.Start, length: to.Length, mode: copyDontWake}
	if err := ioctl(u.fd, requestCopy, &arg); err != nil {
		return fmt.Errorf("uffd: copy %d bytes: %w", to.Length, err)
	}
	return nil
}
