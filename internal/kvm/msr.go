package kvm

import (
	"fmt"
	"slices"
	"sync"
)

// MSR is a model-specific register and its value.
type MSR struct {
	_     struct{} `cbor:",toarray"`
	Index uint32
	_     uint32
	Value uint64
}

// maxMSRBatch is how many registers go into one call; KVM takes up to 256.
const maxMSRBatch = 256

// msrBatch mirrors struct kvm_msrs with room for entries.
type msrBatch struct {
	count   uint32
	_       uint32
	entries [maxMSRBatch]MSR
}

// msrList mirrors struct kvm_msr_list with room for entries.
type msrList struct {
	count   uint32
	indices [maxMSRList]uint32
}

// maxMSRList is more than any kernel lists: 6.18 has fewer than 200.
const maxMSRList = 1024

// MSRIndexList returns the registers that hold a guest's state (section 4.3).
func (s *System) MSRIndexList() ([]uint32, error) {
	return s.msrList(requestGetMSRList, "msr index list")
}

// MSRFeatureList returns the registers that tell of the host's features
// (section 4.3).
func (s *System) MSRFeatureList() ([]uint32, error) {
	return s.msrList(requestGetFeatureMSRs, "msr feature list")
}

func (s *System) msrList(request uintptr, what string) ([]uint32, error) {
	l := msrList{count: maxMSRList}
	if err := ioctl(s.file.Fd(), request, &l); err != nil {
		return nil, fmt.Errorf("kvm: get %s: %w", what, err)
	}
	return l.indices[:min(l.count, maxMSRList)], nil
}

// MSRs reads registers (section 4.18). Those that cannot be read are left out.
func (c *VCPU) MSRs(indices []uint32) ([]MSR, error) {
	list := make([]MSR, 0, len(indices))
	b := new(msrBatch)
	for len(indices) > 0 {
		n := min(len(indices), maxMSRBatch)
		b.count = uint32(n)
		for i, index := range indices[:n] {
			b.entries[i] = MSR{Index: index}
		}
		done, err := ioctlValue(c.fd, requestGetMSRs, b)
		if err != nil {
			return nil, fmt.Errorf("kvm: get msrs of vcpu %d: %w", c.id, err)
		}
		// KVM stops at the first that it cannot read.
		done = min(done, n)
		list = append(list, b.entries[:done]...)
		indices = indices[min(done+1, n):]
	}
	return list, nil
}

// RefusedMSR is the error of a register that could not be set.
type RefusedMSR struct{ MSR MSR }

func (e *RefusedMSR) Error() string {
	return fmt.Sprintf("msr %#x refuses %#x", e.MSR.Index, e.MSR.Value)
}

// SetMSRs sets registers, in order (section 4.19). Each that cannot be set is
// a RefusedMSR for which refused is asked: nil goes on with the next.
func (c *VCPU) SetMSRs(list []MSR, refused func(*RefusedMSR) error) error {
	list, err := c.keepWaiting(list)
	if err != nil {
		return err
	}
	b := new(msrBatch)
	for len(list) > 0 {
		n := min(len(list), maxMSRBatch)
		b.count = uint32(n)
		copy(b.entries[:], list[:n])
		done, err := ioctlValue(c.fd, requestSetMSRs, b)
		if err != nil {
			return fmt.Errorf("kvm: set msrs of vcpu %d: %w", c.id, err)
		}
		if done = min(done, n); done == n {
			list = list[n:]
			continue
		}
		if err := refused(&RefusedMSR{list[done]}); err != nil {
			return fmt.Errorf("kvm: set msrs of vcpu %d: %w", c.id, err)
		}
		list = list[done+1:]
	}
	return nil
}

// keepWaiting takes the register of asynchronous page faults out of list if it is zero
// and is to be zero. A processor whose guest takes no such faults stands still while the
// host brings a page, one that is write-protected by a userfaultfd for example. A write of
// zero, also over zero, has KVM forget the page but not that the processor waits for it
// (kvm_pv_enable_async_pf in arch/x86/kvm/x86.c), and it would never run again.
func (c *VCPU) keepWaiting(list []MSR) ([]MSR, error) {
	at := slices.Index(list, MSR{Index: msrAsyncPF})
	if at < 0 {
		return list, nil
	}
	now, err := c.MSRs([]uint32{msrAsyncPF})
	if err != nil || len(now) != 1 || now[0].Value != 0 {
		return list, err
	}
	return slices.Delete(slices.Clone(list), at, at+1), nil
}

// Registers that the index list does not name and that hold state
// nevertheless.
const (
	MSRFSBase       = 0xc000_0100
	MSRGSBase       = 0xc000_0101
	MSRKernelGSBase = 0xc000_0102
	// MSRPVM is the state of a guest that runs natively on a pvm host; other
	// hosts do not have it.
	MSRPVM = 0x4b56_4d10
)

// ReportMSRs name the places in guest memory that KVM writes to by itself when a
// processor runs, and are zero when it is to write nothing (the kernel's
// Documentation/virt/kvm/x86/msr.rst): its clock, asynchronous page faults, stolen time
// and ends of interrupts.
var ReportMSRs = []uint32{0x12, 0x4b56_4d01, msrAsyncPF, 0x4b56_4d03, 0x4b56_4d04}

const msrAsyncPF = 0x4b56_4d02 // MSR_KVM_ASYNC_PF_EN

// stateMSRs are the registers that hold a processor's state on this host.
type stateMSRs struct {
	once sync.Once
	list []uint32
	err  error
}

// StateMSRs returns the registers that hold the processor's state, as far as
// this host can read them. The first call for a System finds out, by reading
// each from c; the slice is shared and must not be changed.
func (c *VCPU) StateMSRs() ([]uint32, error) {
	s := &c.system.stateMSRs
	s.once.Do(func() {
		var candidates []uint32
		if candidates, s.err = c.system.MSRIndexList(); s.err != nil {
			return
		}
		for _, index := range []uint32{MSRFSBase, MSRGSBase, MSRKernelGSBase, MSRPVM} {
			if !slices.Contains(candidates, index) {
				candidates = append(candidates, index)
			}
		}
		var values []MSR
		if values, s.err = c.MSRs(candidates); s.err != nil {
			return
		}
		for _, v := range values {
			s.list = append(s.list, v.Index)
		}
	})
	return s.list, s.err
}
