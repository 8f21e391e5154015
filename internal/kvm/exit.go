package kvm

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// Exit reasons, section 5 (KVM_EXIT_…).
const (
	ExitIO            = 2
	ExitHalt          = 5
	ExitMMIO          = 6
	ExitShutdown      = 8
	ExitFailEntry     = 9
	ExitIntr          = 10
	ExitInternalError = 17
	ExitSystemEvent   = 24
	ExitDirtyRingFull = 31
)

// Offsets into struct kvm_run.
const (
	runImmediateExit = 1
	runExitReason    = 8
	runUnion         = 32
)

// Run lets the processor run until something needs the VMM (section 4.10).
// interrupted is true when SetImmediateExit or a signal ended it without an
// exit.
//
// The call goes through the Go scheduler's system call path: a raw one would
// keep the processor of this thread and hold up every garbage collection.
func (c *VCPU) Run() (interrupted bool, err error) {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, c.fd, requestRun, 0)
	switch errno {
	case 0:
		return false, nil
	case unix.EINTR, unix.EAGAIN:
		// EAGAIN: woken from the wait for a start-up IPI.
		return true, nil
	default:
		return false, fmt.Errorf("kvm: run vcpu %d: %w", c.id, errno)
	}
}

// SetImmediateExit makes the next Run return at once, or no longer. To stop a
// processor that is running, set it and send its thread a signal.
func (c *VCPU) SetImmediateExit(on bool) {
	var v byte
	if on {
		v = 1
	}
	c.run[runImmediateExit] = v
}

// ExitReason is why Run returned.
func (c *VCPU) ExitReason() uint32 {
	return binary.LittleEndian.Uint32(c.run[runExitReason:])
}

// PortIO is an access to an I/O port: Count transfers of Size bytes each, one
// after the other in Data, which is to be filled when In.
type PortIO struct {
	In   bool
	Size int
	Port uint16
	Data []byte
}

// PortIO returns the access after an ExitIO.
func (c *VCPU) PortIO() (PortIO, error) {
	u := c.run[runUnion:]
	size := int(u[1])
	count := uint64(binary.LittleEndian.Uint32(u[4:]))
	offset := binary.LittleEndian.Uint64(u[8:])
	length := uint64(size) * count
	if offset > uint64(len(c.run)) || length > uint64(len(c.run))-offset || size == 0 {
		return PortIO{}, fmt.Errorf("kvm: port access of %d times %d bytes at %d does not fit in the run area", count, size, offset)
	}
	return PortIO{
		In: u[0] == 0, Size: size, Port: binary.LittleEndian.Uint16(u[2:]),
		Data: c.run[offset : offset+length],
	}, nil
}

// MMIO is an access to an address without memory. Data is to be filled unless
// Write.
type MMIO struct {
	Address uint64
	Data    []byte
	Write   bool
}

// MMIO returns the access after an ExitMMIO.
func (c *VCPU) MMIO() MMIO {
	u := c.run[runUnion:]
	n := min(binary.LittleEndian.Uint32(u[16:]), 8)
	return MMIO{Address: binary.LittleEndian.Uint64(u), Data: u[8 : 8+n], Write: u[20] != 0}
}

// Describe returns the details of an exit that ends the machine, for a
// message.
func (c *VCPU) Describe() string {
	u := c.run[runUnion:]
	switch reason := c.ExitReason(); reason {
	case ExitShutdown:
		return "triple fault"
	case ExitFailEntry:
		return fmt.Sprintf("entry failed: hardware reason %#x", binary.LittleEndian.Uint64(u))
	case ExitInternalError:
		return fmt.Sprintf("kvm internal error %d", binary.LittleEndian.Uint32(u))
	case ExitSystemEvent:
		return fmt.Sprintf("system event %d", binary.LittleEndian.Uint32(u))
	default:
		return fmt.Sprintf("exit reason %d", reason)
	}
}
