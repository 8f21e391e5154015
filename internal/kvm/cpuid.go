package kvm

import (
	"fmt"
	"slices"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
	"golang.org/x/sys/unix"
)

// cpuidTable mirrors struct kvm_cpuid2. It is passed as it is: packing it entry by entry,
// as gokvm does, would be most of what the making of a machine allocates. There is one, too
// large for a stack.
type cpuidTable struct {
	count   uint32
	_       uint32
	entries [MaxCPUID]gokvm.CPUIDEntry2
}

// SupportedCPUID returns what the host can give a guest (section 4.46).
func (s *System) SupportedCPUID() ([]gokvm.CPUIDEntry2, error) {
	s.cpuidMu.Lock()
	defer s.cpuidMu.Unlock()
	t := &s.cpuid
	t.count = MaxCPUID
	if err := ioctl(s.file.Fd(), requestGetCPUID, t); err != nil {
		return nil, fmt.Errorf("kvm: get supported cpuid: %w", err)
	}
	return slices.Clone(t.entries[:min(t.count, MaxCPUID)]), nil
}

// SetCPUID tells the processor what its CPUID instruction answers (section
// 4.20).
func (c *VCPU) SetCPUID(entries []gokvm.CPUIDEntry2) error {
	c.system.cpuidMu.Lock()
	defer c.system.cpuidMu.Unlock()
	t := &c.system.cpuid
	t.count = uint32(len(entries))
	if copy(t.entries[:], entries) < len(entries) {
		return fmt.Errorf("kvm: set cpuid of vcpu %d: %d entries: %w", c.id, len(entries), unix.E2BIG)
	}
	if err := ioctl(c.fd, requestSetCPUID, t); err != nil {
		return fmt.Errorf("kvm: set cpuid of vcpu %d: %w", c.id, err)
	}
	return nil
}
