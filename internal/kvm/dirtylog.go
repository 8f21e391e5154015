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

// DirtyLog writes to bitmap which pages of the slot the guest has written
// since the last call, one bit a page from the lowest, and clears the log
// (section 4.8). bitmap must have a bit for each page of the slot: ErrSize.
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
