// Package uffd write-protects pages of a process's memory by userfaultfd, and puts pages
// into it that are not there (Documentation/admin-guide/mm/userfaultfd.rst). Faults of
// missing pages are not answered: nothing in Thaw needs it.
//
// A descriptor belongs to the memory of the process that made it, and works from
// any process that holds it. Whoever answers faults must be another process than the
// one that faults: a thread of Go that waits for such a page cannot be stopped by
// the garbage collector, which would then wait for ever.
package uffd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Device is where descriptors come from. Only root may open it, which stands for
// the right to have faults of the kernel itself delivered, KVM's among them.
const Device = "/dev/userfaultfd"

// ErrNotSupported is wrapped where the kernel lacks userfaultfd, one of the features
// that were asked for, or what was asked for on the kind of mapping given.
var ErrNotSupported = errors.New("kernel does not offer this use of userfaultfd")

// Features are properties of a descriptor (UFFD_FEATURE_…).
type Features uint64

// Features that matter to write protection.
const (
	// WriteProtect has write faults delivered (Linux 5.7).
	WriteProtect Features = 1 << 0
	// WriteProtectShmem allows it on memfds too, private mappings of them
	// included (Linux 5.19).
	WriteProtectShmem Features = 1 << 12
	// WriteProtectUnpopulated lets pages be protected that are not there yet
	// (Linux 6.4).
	WriteProtectUnpopulated Features = 1 << 13
	// WriteProtectAsync has the kernel itself let a write through, which
	// PAGEMAP_SCAN finds later, on mappings of every kind (Linux 6.7).
	WriteProtectAsync Features = 1 << 15
)

// Range is part of an address space, in bytes.
type Range struct {
	Start, Length uint64
}

// FD is a userfaultfd. Its methods may be called from any goroutine, Close once, after
// all others. It is no os.File: that would set it to block, and a descriptor that
// blocks cannot be waited for.
type FD struct {
	fd int
}

// Open makes a descriptor for this process's memory. device is an open Device, and
// stays the caller's.
func Open(device *os.File, features Features) (*FD, error) {
	fd, err := Make(device)
	if err != nil {
		return nil, err
	}
	u, err := Use(fd, features)
	if err != nil {
		unix.Close(fd)
	}
	return u, err
}

// Make makes a descriptor for this process's memory, for another process to Use.
func Make(device *os.File) (int, error) {
	fd, err := plainIoctl(device.Fd(), requestNew, unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return -1, fmt.Errorf("uffd: make descriptor: %w", unsupported(err))
	}
	return fd, nil
}

// Use sets what a new descriptor is for. It can be done once; the descriptor is the
// FD's from then on, unless there is an error.
func Use(fd int, features Features) (*FD, error) {
	arg := api{version: apiVersion, features: uint64(features)}
	if err := ioctl(fd, requestAPI, &arg); err != nil {
		return nil, fmt.Errorf("uffd: ask for features %#x: %w", uint64(features), unsupported(err))
	}
	return &FD{fd: fd}, nil
}

// Supported returns what the kernel has.
func Supported(device *os.File) (Features, error) {
	fd, err := Make(device)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	arg := api{version: apiVersion}
	if err := ioctl(fd, requestAPI, &arg); err != nil {
		return 0, fmt.Errorf("uffd: ask for features: %w", unsupported(err))
	}
	return Features(arg.features), nil
}

// Fd is the descriptor, to be waited for.
func (u *FD) Fd() int { return u.fd }

// Close gives up the descriptor. With the last copy of it all registrations and protection
// end, and threads that wait go on.
func (u *FD) Close() error {
	if err := unix.Close(u.fd); err != nil {
		return fmt.Errorf("uffd: close: %w", err)
	}
	return nil
}

// Register prepares whole mappings for protection. It protects nothing yet.
func (u *FD) Register(r Range) error {
	arg := register{r: r, mode: registerWP}
	if err := ioctl(u.fd, requestRegister, &arg); err != nil {
		return fmt.Errorf("uffd: register %d bytes: %w", r.Length, unsupported(err))
	}
	return nil
}

// Unregister ends all that a range was registered for.
func (u *FD) Unregister(r Range) error {
	if err := ioctl(u.fd, requestUnregister, &r); err != nil {
		return fmt.Errorf("uffd: unregister %d bytes: %w", r.Length, err)
	}
	return nil
}

// Protect protects pages that are registered; the next write to each is a fault.
func (u *FD) Protect(r Range) error { return u.protect(r, writeProtect) }

// Release lets writes through again, and those go on that wait for it.
func (u *FD) Release(r Range) error { return u.protect(r, 0) }

func (u *FD) protect(r Range, mode uint64) error {
	for {
		// EAGAIN: the address space is being changed by another thread.
		err := ioctl(u.fd, requestWriteProtect, &protection{r: r, mode: mode})
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EAGAIN) {
			return fmt.Errorf("uffd: set protection of %d bytes: %w", r.Length, err)
		}
	}
}

// Messages are of fixed size (struct uffd_msg).
const (
	messageSize    = 32
	messageFlags   = 8
	messageAddress = 16
	eventPageFault = 0x12 // UFFD_EVENT_PAGEFAULT
	faultWP        = 1 << 1
)

// Faults appends to list the addresses, each at the start of its page, of writes that
// wait. It does not block: there may be none. It returns an error that wraps
// ErrNotSupported for messages that nobody asked for.
func (u *FD) Faults(list []uint64) ([]uint64, error) {
	var buf [16 * messageSize]byte
	for {
		n, err := unix.Read(u.fd, buf[:])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return list, nil
		case err != nil:
			return list, fmt.Errorf("uffd: read faults: %w", err)
		}
		for b := buf[:n]; len(b) >= messageSize; b = b[messageSize:] {
			if b[0] != eventPageFault || binary.LittleEndian.Uint64(b[messageFlags:])&faultWP == 0 {
				return list, fmt.Errorf("uffd: message %#x is no write fault: %w", b[0], ErrNotSupported)
			}
			list = append(list, binary.LittleEndian.Uint64(b[messageAddress:])&^(pageSize-1))
		}
		return list, nil
	}
}

const pageSize = 4096

// unsupported tells what the kernel refuses from what went wrong. EINVAL is its
// answer to features and kinds of mapping that it does not have.
func unsupported(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: %w", err, ErrNotSupported)
	}
	return err
}
