package kvm

import (
	"fmt"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// What KVM calls struct kvm_regs, kvm_sregs and kvm_debugregs.
type (
	Regs      = gokvm.Regs
	Sregs     = gokvm.Sregs
	DebugRegs = gokvm.DebugRegs
)

// get and set are how all fixed-size state is read and written.
func get[T any](c *VCPU, request uintptr, what string) (v T, err error) {
	if err := ioctl(c.fd, request, &v); err != nil {
		return v, fmt.Errorf("kvm: get %s of vcpu %d: %w", what, c.id, err)
	}
	return v, nil
}

func set[T any](c *VCPU, request uintptr, what string, v *T) error {
	if err := ioctl(c.fd, request, v); err != nil {
		return fmt.Errorf("kvm: set %s of vcpu %d: %w", what, c.id, err)
	}
	return nil
}

// Regs returns the general registers (section 4.11).
func (c *VCPU) Regs() (Regs, error) { return get[Regs](c, requestGetRegs, "registers") }

// SetRegs sets the general registers (section 4.12).
func (c *VCPU) SetRegs(r Regs) error { return set(c, requestSetRegs, "registers", &r) }

// Sregs returns the segment and control registers (section 4.13).
func (c *VCPU) Sregs() (Sregs, error) { return get[Sregs](c, requestGetSregs, "segment registers") }

// SetSregs sets the segment and control registers (section 4.14).
func (c *VCPU) SetSregs(r Sregs) error { return set(c, requestSetSregs, "segment registers", &r) }

// DebugRegs returns the debug registers (section 4.33).
func (c *VCPU) DebugRegs() (DebugRegs, error) {
	return get[DebugRegs](c, requestGetDebugRegs, "debug registers")
}

// SetDebugRegs sets the debug registers (section 4.34).
func (c *VCPU) SetDebugRegs(r DebugRegs) error {
	return set(c, requestSetDebugRegs, "debug registers", &r)
}
