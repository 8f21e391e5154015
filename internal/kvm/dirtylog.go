package kvm

import (
	"fmt"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

const pageSize = 4096

// memLogDirtyPages is KVM_MEM_LOG_DIRTY_PAGES.
const memLogDirtyPages = 1 << 0

// dirtyLog mirrors struct kvm_dirty_log.
type dirtyLog struct {
	slot   uint32
	_      uint32
	bitmap *uint64
}

func (vm *VM) region(slot uint32) (*gokvm.UserspaceMemoryRegion, error) {
	for _, r := range vm.regions {
		if r.Slot == slot {
			return r, nil
		}
	}
	return nil, fmt.Errorf("kvm: memory slot %d is not set: %w", slot, ErrSize)
}

// SetDirtyLog starts or ends the log of pages that the guest writes in a slot
// that SetMemory has set (section 4.35). It starts empty. What this process
// itself writes is not in it.
func (vm *VM) SetDirtyLog(slot uint32, on bool) error {
	r, err := vm.region(slot)
	if err != nil {
		return err
	}
	flags := r.Flags &^ memLogDirtyPages
	if on {
		flags |= memLogDirtyPages
	}
	old := r.Flags
	r.Flags = flags
	if err := gokvm.SetUserMemoryRegion(vm.fd, r); err != nil {
		r.Flags = old
		return fmt.Errorf("kvm: set dirty log of memory slot %d: %w", slot, err)
	}
	return nil
}

// CanKeepDirtyLog says whether KeepDirtyLog will do something.
func (s *System) CanKeepDirtyLog() bool {
	return s.Capability(capManualDirtyLog)&manualProtect != 0
}

// KeepDirtyLog makes the dirty log stay as it is when it is read: a page that is in
// it costs the guest nothing more, until ClearDirtyLog takes it out (section 8.8,
// KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2). It is false where the host cannot do that.
func (vm *VM) KeepDirtyLog() (bool, error) {
	if !vm.system.CanKeepDirtyLog() {
		return false, nil
	}
	e := enableCap{number: capManualDirtyLog, args: [4]uint64{manualProtect}}
	if err := ioctl(vm.fd, requestEnableCap, &e); err != nil {
		return false, fmt.Errorf("kvm: keep dirty log: %w", err)
	}
	return true, nil
}

const (
	capManualDirtyLog = 168
	manualProtect     = 1 << 0 // KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE
)

// clearDirtyLog mirrors struct kvm_clear_dirty_log.
type clearDirtyLog struct {
	slot   uint32
	pages  uint32
	_      uint64 // first page
	bitmap *uint64
}

// ClearDirtyLog takes the pages that are marked in bitmap out of a log that is kept,
// so that the next write to them is noticed again (section 4.117).
func (vm *VM) ClearDirtyLog(slot uint32, bitmap []uint64) error {
	r, err := vm.region(slot)
	if err != nil {
		return err
	}
	pages := r.MemorySize / pageSize
	if uint64(len(bitmap)) < (pages+63)/64 {
		return fmt.Errorf("kvm: clear dirty log of memory slot %d: bitmap of %d words for %d pages: %w", slot, len(bitmap), pages, ErrSize)
	}
	arg := clearDirtyLog{slot: slot, pages: uint32(pages), bitmap: &bitmap[0]}
	if err := ioctl(vm.fd, requestClearDirtyLog, &arg); err != nil {
		return fmt.Errorf("kvm: clear dirty log of memory slot %d: %w", slot, err)
	}
	return nil
}

// DirtyLog writes to bitmap which pages of the slot the guest has written
// since the last call, one bit a page from the lowest, and clears the log, unless
// it is kept (section 4.8). bitmap must have a bit for each page of the slot: ErrSize.
func (vm *VM) DirtyLog(slot uint32, bitmap []uint64) error {
	r, err := vm.region(slot)
	if err != nil {
		return err
	}
	if words := (r.MemorySize/pageSize + 63) / 64; words == 0 || uint64(len(bitmap)) < words {
		return fmt.Errorf("kvm: get dirty log of memory slot %d: bitmap of %d words, not %d: %w", slot, len(bitmap), words, ErrSize)
	}
	if err := ioctl(vm.fd, requestGetDirtyLog, &dirtyLog{slot: slot, bitmap: &bitmap[0]}); err != nil {
		return fmt.Errorf("kvm: get dirty log of memory slot %d: %w", slot, err)
	}
	return nil
}
