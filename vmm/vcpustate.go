package vmm

import (
	"fmt"
	"slices"

	"thaw/internal/kvm"
	"thaw/virtio"
)

// VCPUState is all of a processor but its CPUID. It comes from a snapshot file:
// untrusted. Blobs are laid out as in the kernel's <asm/kvm.h>.
type VCPUState struct {
	MPState   uint32        `cbor:"mp_state"`
	Sregs     kvm.Sregs     `cbor:"sregs"`
	Regs      kvm.Regs      `cbor:"regs"`
	XCRs      []kvm.XCR     `cbor:"xcrs"`
	XSAVE     []byte        `cbor:"xsave"` // struct kvm_xsave
	DebugRegs kvm.DebugRegs `cbor:"debug_regs"`
	LAPIC     []byte        `cbor:"lapic"` // struct kvm_lapic_state
	MSRs      []kvm.MSR     `cbor:"msrs"`
	Events    kvm.Events    `cbor:"events"`
}

// Bounds of what a state may hold, whatever the host.
const (
	maxStateXSAVE = 64 << 10
	maxStateMSRs  = 1024
)

// validate checks what can be checked without KVM. Values of registers are
// KVM's to refuse.
func (s *VCPUState) validate() error {
	switch {
	case s.MPState > kvm.MPSIPIReceived:
		return fmt.Errorf("mp state %d: %w", s.MPState, virtio.ErrState)
	case len(s.XCRs) > kvm.MaxXCRs:
		return fmt.Errorf("%d extended control registers: %w", len(s.XCRs), virtio.ErrState)
	case len(s.XSAVE) > maxStateXSAVE:
		return fmt.Errorf("xsave area of %d bytes: %w", len(s.XSAVE), virtio.ErrState)
	case len(s.LAPIC) != kvm.LAPICSize:
		return fmt.Errorf("local apic of %d bytes: %w", len(s.LAPIC), virtio.ErrState)
	case len(s.MSRs) > maxStateMSRs:
		return fmt.Errorf("%d msrs: %w", len(s.MSRs), virtio.ErrState)
	}
	seen := make(map[uint32]bool, len(s.MSRs))
	for _, r := range s.MSRs {
		if seen[r.Index] {
			return fmt.Errorf("msr %#x twice: %w", r.Index, virtio.ErrState)
		}
		seen[r.Index] = true
	}
	if seen[msrTSCDeadline] && !seen[msrTSC] {
		return fmt.Errorf("tsc deadline without a tsc: %w", virtio.ErrState)
	}
	return nil
}

// state saves the processor. Preconditions: it has left KVM_RUN by an
// interruption, see order.go.
func (c *vcpu) state() (s VCPUState, err error) {
	fail := func(err error) (VCPUState, error) {
		return VCPUState{}, fmt.Errorf("vmm: save vcpu %d: %w", c.id, err)
	}
	k := c.kvm
	if s.MPState, err = k.MPState(); err != nil {
		return fail(err)
	}
	if s.Regs, err = k.Regs(); err != nil {
		return fail(err)
	}
	if s.Sregs, err = k.Sregs(); err != nil {
		return fail(err)
	}
	if s.XCRs, err = k.XCRs(); err != nil {
		return fail(err)
	}
	if s.XSAVE, err = k.XSAVE(); err != nil {
		return fail(err)
	}
	if s.DebugRegs, err = k.DebugRegs(); err != nil {
		return fail(err)
	}
	lapic, err := k.LAPIC()
	if err != nil {
		return fail(err)
	}
	s.LAPIC = lapic[:]
	known, err := k.StateMSRs()
	if err != nil {
		return fail(err)
	}
	if s.MSRs, err = k.MSRs(known); err != nil {
		return fail(err)
	}
	if s.Events, err = k.Events(); err != nil {
		return fail(err)
	}
	return s, nil
}

// setState puts the processor into a saved state, in the order of order.go.
// Preconditions: it does not run, and its CPUID is that of the one saved. The
// error wraps virtio.ErrState when the state is to blame or belongs to another
// kind of host; the processor is then of no further use.
func (c *vcpu) setState(s VCPUState) error {
	err := s.validate()
	if err == nil {
		err = c.apply(&s)
	}
	if err != nil {
		return fmt.Errorf("vmm: restore vcpu %d: %w", c.id, err)
	}
	return nil
}

func (c *vcpu) apply(s *VCPUState) error {
	k := c.kvm
	known, err := k.StateMSRs()
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return k.SetMPState(s.MPState) },
		func() error { return k.SetSregs(s.Sregs) },
		func() error { return k.SetRegs(s.Regs) },
		func() error { return k.SetXCRs(s.XCRs) },
		func() error { return k.SetXSAVE(s.XSAVE) },
		func() error { return k.SetDebugRegs(s.DebugRegs) },
		func() error { return k.SetLAPIC([kvm.LAPICSize]byte(s.LAPIC)) },
		func() error { return c.setMSRs(s.MSRs, known) },
		func() error { return k.SetEvents(s.Events) },
	} {
		// KVM checks values against the host and the machine's CPUID.
		if err := step(); err != nil {
			return fmt.Errorf("%w: %w", err, virtio.ErrState)
		}
	}
	return nil
}

// setMSRs sets the saved registers; known are those that this host has. Those
// that the state lacks keep the value of a new processor.
func (c *vcpu) setMSRs(saved []kvm.MSR, known []uint32) error {
	for _, r := range saved {
		if !slices.Contains(known, r.Index) {
			return fmt.Errorf("host does not have msr %#x", r.Index)
		}
	}
	plan := planMSRs(saved, slices.Contains(known, kvm.MSRPVM))
	if err := c.kvm.SetMSRs(plan.registers, mayRefuse); err != nil {
		return err
	}
	if plan.deadline == 0 {
		return nil
	}
	now, err := c.kvm.MSRs([]uint32{msrTSC})
	if err != nil {
		return err
	}
	if len(now) == 0 {
		return fmt.Errorf("host does not let its tsc be read")
	}
	deadline := moveDeadline(plan.deadline, plan.tsc, now[0].Value)
	return c.kvm.SetMSRs([]kvm.MSR{{Index: msrTSCDeadline, Value: deadline}}, mayRefuse)
}
