package kvm

import (
	"encoding/binary"
	"fmt"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// LAPICSize is the size of a local APIC's registers: struct kvm_lapic_state.
const LAPICSize = 1024

// LAPIC returns the registers of the processor's local APIC (section 4.57).
func (c *VCPU) LAPIC() ([LAPICSize]byte, error) {
	return get[[LAPICSize]byte](c, requestGetLAPIC, "local apic")
}

// SetLAPIC sets the registers of the processor's local APIC (section 4.58). It
// needs the APIC base that SetSregs sets.
func (c *VCPU) SetLAPIC(regs [LAPICSize]byte) error {
	return set(c, requestSetLAPIC, "local apic", &regs)
}

// Interrupt controllers that a machine has beside its local APICs.
const (
	PICMaster = 0 // KVM_IRQCHIP_PIC_MASTER
	PICSlave  = 1 // KVM_IRQCHIP_PIC_SLAVE
	IOAPIC    = 2 // KVM_IRQCHIP_IOAPIC
)

// Sizes of the state of interrupt controllers: struct kvm_pic_state and struct
// kvm_ioapic_state.
const (
	PICSize    = 16
	IOAPICSize = 216
)

func chipSize(id uint32) int {
	if id == IOAPIC {
		return IOAPICSize
	}
	return PICSize
}

// IRQChip returns the state of an interrupt controller (section 4.26).
func (vm *VM) IRQChip(id uint32) ([]byte, error) {
	chip := gokvm.IRQChip{ChipID: id}
	if err := ioctl(vm.fd, requestGetIRQChip, &chip); err != nil {
		return nil, fmt.Errorf("kvm: get irqchip %d: %w", id, err)
	}
	return append([]byte(nil), chip.Chip[:chipSize(id)]...), nil
}

// SetIRQChip sets the state of an interrupt controller (section 4.27). state
// must have PICSize or IOAPICSize bytes: ErrSize.
func (vm *VM) SetIRQChip(id uint32, state []byte) error {
	if len(state) != chipSize(id) {
		return fmt.Errorf("kvm: set irqchip %d: %d bytes, not %d: %w", id, len(state), chipSize(id), ErrSize)
	}
	chip := gokvm.IRQChip{ChipID: id}
	copy(chip.Chip[:], state)
	if err := ioctl(vm.fd, requestSetIRQChip, &chip); err != nil {
		return fmt.Errorf("kvm: set irqchip %d: %w", id, err)
	}
	return nil
}

// Unmasked says whether a guest lets a line of its I/O APIC, whose state has IOAPICSize
// bytes, interrupt it.
func Unmasked(state []byte, line uint32) bool {
	const (
		table  = 24 // the redirection table, 64 bits a line
		masked = 1 << 16
	)
	return binary.LittleEndian.Uint64(state[table+8*line:])&masked == 0
}
