package vmm

import (
	"fmt"

	"thaw/internal/kvm"
	"thaw/virtio"
)

// ChipState is the machine's interrupt controllers beside the local APICs, each
// laid out as in the kernel's <asm/kvm.h>. It comes from a snapshot file:
// untrusted.
type ChipState struct {
	PICMaster []byte `cbor:"pic_master"` // struct kvm_pic_state
	PICSlave  []byte `cbor:"pic_slave"`
	IOAPIC    []byte `cbor:"ioapic"` // struct kvm_ioapic_state
}

// chips pairs each controller with where its state is, in the order in which they
// are set: the second PIC first. KVM updates the pair's output with each, so that an
// interrupt that the second one had from before a rollback would be latched by a first
// one that is set already.
func (s *ChipState) chips() []struct {
	id    uint32
	state *[]byte
} {
	return []struct {
		id    uint32
		state *[]byte
	}{{kvm.PICSlave, &s.PICSlave}, {kvm.PICMaster, &s.PICMaster}, {kvm.IOAPIC, &s.IOAPIC}}
}

func (s *ChipState) validate() error {
	if len(s.PICMaster) != kvm.PICSize || len(s.PICSlave) != kvm.PICSize || len(s.IOAPIC) != kvm.IOAPICSize {
		return fmt.Errorf("interrupt controllers of %d, %d and %d bytes: %w", len(s.PICMaster), len(s.PICSlave), len(s.IOAPIC), virtio.ErrState)
	}
	return nil
}

// chipState saves the interrupt controllers. Preconditions: paused.
func (m *Machine) chipState() (s ChipState, err error) {
	for _, c := range s.chips() {
		if *c.state, err = m.vm.IRQChip(c.id); err != nil {
			return ChipState{}, fmt.Errorf("vmm: save interrupt controllers: %w", err)
		}
	}
	return s, nil
}

// setChipState sets the interrupt controllers. Preconditions: no processor
// runs, and setState of each is done. The error wraps virtio.ErrState when the
// state is to blame.
func (m *Machine) setChipState(s ChipState) error {
	if err := s.validate(); err != nil {
		return fmt.Errorf("vmm: restore interrupt controllers: %w", err)
	}
	for _, c := range s.chips() {
		if err := m.vm.SetIRQChip(c.id, *c.state); err != nil {
			return fmt.Errorf("vmm: restore interrupt controllers: %w: %w", err, virtio.ErrState)
		}
	}
	return nil
}

// ClockState is the machine's kvmclock.
type ClockState struct {
	// Nanoseconds since the guest booted, without the time that it was paused.
	Nanoseconds uint64 `cbor:"ns"`
}

// clockState saves the clock.
func (m *Machine) clockState() (ClockState, error) {
	ns, err := m.vm.Clock()
	if err != nil {
		return ClockState{}, fmt.Errorf("vmm: save clock: %w", err)
	}
	return ClockState{ns}, nil
}

// setClockState makes guest time go on from where it was saved, and tells each
// processor of the pause. Preconditions: setState of each is done.
func (m *Machine) setClockState(s ClockState) error {
	if err := m.vm.SetClock(s.Nanoseconds); err != nil {
		return fmt.Errorf("vmm: restore clock: %w: %w", err, virtio.ErrState)
	}
	for _, c := range m.vcpus {
		if err := c.kvm.ClockStopped(); err != nil {
			return fmt.Errorf("vmm: restore clock: %w", err)
		}
	}
	return nil
}
