package kvm

import (
	"fmt"
	"unsafe"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
	"golang.org/x/sys/unix"
)

// irqfd mirrors struct kvm_irqfd.
type irqfd struct {
	fd  uint32
	gsi uint32
	_   [24]byte // flags, resamplefd, padding
}

// ioeventfd mirrors struct kvm_ioeventfd.
type ioeventfd struct {
	datamatch uint64
	addr      uint64
	length    uint32
	fd        int32
	flags     uint32
	_         [36]byte
}

const ioeventfdDatamatch = 1 // KVM_IOEVENTFD_FLAG_DATAMATCH

// ioctl passes a pointer as the system call's argument in one expression, as
// package unsafe demands (pattern 4).
func ioctl[T any](fd, request uintptr, arg *T) error {
	_, err := ioctlValue(fd, request, arg)
	return err
}

// ioctlValue is an ioctl whose answer is a number.
func ioctlValue[T any](fd, request uintptr, arg *T) (int, error) {
	v, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(arg)))
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

func (vm *VM) setIdentityMap(addr uint64) error {
	if err := ioctl(vm.fd, requestSetIdentityMap, &addr); err != nil {
		return fmt.Errorf("kvm: set identity map address: %w", err)
	}
	return nil
}

// AddIrqfd makes a signal of fd an edge on the interrupt line gsi (section
// 4.75).
func (vm *VM) AddIrqfd(fd int, gsi uint32) error {
	if err := ioctl(vm.fd, requestIrqfd, &irqfd{fd: uint32(fd), gsi: gsi}); err != nil {
		return fmt.Errorf("kvm: register irqfd for line %d: %w", gsi, err)
	}
	return nil
}

// AddIoeventfd makes a guest's 32-bit write of value to addr signal fd
// instead of leaving the kernel (section 4.59). Other values go on to exit.
func (vm *VM) AddIoeventfd(fd int, addr uint64, value uint32) error {
	arg := ioeventfd{datamatch: uint64(value), addr: addr, length: 4, fd: int32(fd), flags: ioeventfdDatamatch}
	if err := ioctl(vm.fd, requestIoeventfd, &arg); err != nil {
		return fmt.Errorf("kvm: register ioeventfd for %d at %#x: %w", value, addr, err)
	}
	return nil
}

// SetMemory makes mem, which must stay mapped, the guest's memory at gpa, as
// the given slot (section 4.35). A guest's write to a read-only slot is an
// MMIO exit.
//
// Register slots before CreateIRQChip: on pvm hosts that is five times
// cheaper, and no dearer elsewhere.
func (vm *VM) SetMemory(slot uint32, gpa uint64, mem []byte, readonly bool) error {
	r := &gokvm.UserspaceMemoryRegion{
		Slot: slot, GuestPhysAddr: gpa, MemorySize: uint64(len(mem)),
		UserspaceAddr: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))),
	}
	if readonly {
		r.SetMemReadonly()
	}
	vm.regions = append(vm.regions, r)
	if err := gokvm.SetUserMemoryRegion(vm.fd, r); err != nil {
		return fmt.Errorf("kvm: set memory slot %d, %d bytes at %#x: %w", slot, len(mem), gpa, err)
	}
	return nil
}

// ResetMemory removes a memory slot and sets it again: KVM forgets what it knew
// of the guest's page tables (section 4.35).
func (vm *VM) ResetMemory(slot uint32) error {
	r, err := vm.region(slot)
	if err != nil {
		return err
	}
	gone := *r
	gone.MemorySize = 0
	if err := gokvm.SetUserMemoryRegion(vm.fd, &gone); err != nil {
		return fmt.Errorf("kvm: remove memory slot %d: %w", slot, err)
	}
	if err := gokvm.SetUserMemoryRegion(vm.fd, r); err != nil {
		return fmt.Errorf("kvm: set memory slot %d again: %w", slot, err)
	}
	return nil
}
