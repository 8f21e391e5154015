package kvm

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Capabilities of the dirty ring (section 8.29).
const (
	CapDirtyRing       = 192 // KVM_CAP_DIRTY_LOG_RING
	CapDirtyRingAcqRel = 223 // KVM_CAP_DIRTY_LOG_RING_ACQ_REL
)

// enableCap mirrors struct kvm_enable_cap.
type enableCap struct {
	number uint32
	_      uint32
	args   [4]uint64
	_      [64]byte
}

// DirtyRing is a processor's list of pages that it has written, shared with
// KVM (section 8.29). Each entry goes through
//
//	empty ──KVM: guest wrote──▶ dirty ──Harvest──▶ harvested ──ResetDirtyRings──▶ empty
//
// One goroutine may harvest at a time.
type DirtyRing struct {
	mapped []byte
	next   uint32 // entry that KVM fills next, as far as we know
}

// Entries of the ring mirror struct kvm_dirty_gfn: flags and slot, 32 bits
// each, then the page's number in the slot.
const (
	ringEntrySize   = 16
	ringEntryFlags  = 0
	ringEntrySlot   = 4
	ringEntryOffset = 8

	ringDirty     = 1 << 0 // KVM_DIRTY_GFN_F_DIRTY
	ringHarvested = 1 << 1 // KVM_DIRTY_GFN_F_RESET
)

// ringOffset is where the ring is in a vCPU's file: KVM_DIRTY_LOG_PAGE_OFFSET.
const ringOffset = 64 * pageSize

// DirtyRingLimit is the largest dirty ring that the host offers, in bytes;
// zero: none.
func (s *System) DirtyRingLimit() int {
	return max(s.Capability(CapDirtyRingAcqRel), s.Capability(CapDirtyRing))
}

// EnableDirtyRing gives every processor that is made from now on a dirty ring
// of size bytes, a power of two up to DirtyRingLimit (section 8.29). It
// excludes GET_DIRTY_LOG, and slots still need SetDirtyLog.
func (vm *VM) EnableDirtyRing(size int) error {
	e := enableCap{number: CapDirtyRingAcqRel, args: [4]uint64{uint64(size)}}
	if vm.system.Capability(CapDirtyRingAcqRel) == 0 {
		e.number = CapDirtyRing
	}
	if err := ioctl(vm.fd, requestEnableCap, &e); err != nil {
		return fmt.Errorf("kvm: enable dirty ring of %d bytes: %w", size, err)
	}
	vm.ringBytes = size
	return nil
}

func mapDirtyRing(fd, size int) (*DirtyRing, error) {
	b, err := unix.Mmap(fd, ringOffset, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &DirtyRing{mapped: b}, nil
}

func (r *DirtyRing) unmap() error {
	if r == nil {
		return nil
	}
	b := r.mapped
	r.mapped = nil
	return unix.Munmap(b)
}

// DirtyRing returns the processor's ring, nil when the machine has none.
func (c *VCPU) DirtyRing() *DirtyRing { return c.ring }

// Entries is how many pages the ring has room for.
func (r *DirtyRing) Entries() int { return len(r.mapped) / ringEntrySize }

// Harvest calls f for each page that the processor has written since it was
// last reset, by slot and page number in it, and returns how many there were.
// ResetDirtyRings must follow; a ring that is nearly full stops its processor with
// exit ExitDirtyRingFull. One that was quite full has lost pages, and cannot be used
// any more: KVM writes over what was not harvested.
func (r *DirtyRing) Harvest(f func(slot uint32, page uint64)) int {
	entries := uint32(r.Entries())
	n := 0
	for ; n < int(entries); n++ {
		entry := r.mapped[r.next%entries*ringEntrySize:][:ringEntrySize]
		if loadFlags(entry)&ringDirty == 0 {
			break
		}
		f(ringEntry(entry))
		storeFlags(entry, ringHarvested)
		r.next++
	}
	return n
}

// ResetDirtyRings gives the harvested entries of all processors back to KVM,
// which notices the next write to their pages again (KVM_RESET_DIRTY_RINGS).
// It returns how many there were; a signal can make it fewer than were harvested.
func (vm *VM) ResetDirtyRings() (int, error) {
	for {
		n, err := plainIoctl(vm.fd, requestResetRings)
		if err == nil {
			return n, nil
		}
		if !errors.Is(err, unix.EINTR) {
			return 0, fmt.Errorf("kvm: reset dirty rings: %w", err)
		}
	}
}

func ringEntry(entry []byte) (slot uint32, page uint64) {
	return binary.LittleEndian.Uint32(entry[ringEntrySlot:]), binary.LittleEndian.Uint64(entry[ringEntryOffset:])
}
