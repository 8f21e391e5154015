package kvm

import (
	"errors"
	"fmt"

	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// capXSAVE2 is KVM_CAP_XSAVE2: its value is the size of the XSAVE area.
const capXSAVE2 = 208

// minXSAVESize is sizeof(struct kvm_xsave), which KVM_GET_XSAVE writes.
const minXSAVESize = 4096

// maxXSAVESize is more than any processor has: AMX's tiles make it 11 KiB.
const maxXSAVESize = 64 << 10

// xsaveArea is larger than any host's XSAVE area: KVM reads and writes as much
// as the capability says, whatever the length of the caller's slice.
type xsaveArea struct{ bytes *[maxXSAVESize]byte }

func (a *xsaveArea) get() *[maxXSAVESize]byte {
	if a.bytes == nil {
		a.bytes = new([maxXSAVESize]byte)
	}
	return a.bytes
}

// ErrSize is wrapped when state has another size than this host's KVM uses.
var ErrSize = errors.New("state has the wrong size")

// XSAVESize is the size of a processor's XSAVE area on this host, in bytes.
func (s *System) XSAVESize() int { return s.xsaveSize }

func (s *System) findXSAVESize() error {
	s.xsaveSize = max(minXSAVESize, s.Capability(capXSAVE2))
	if s.xsaveSize > maxXSAVESize {
		return fmt.Errorf("kvm: xsave area of %d bytes, at most %d are expected: %w", s.xsaveSize, maxXSAVESize, ErrNotUsable)
	}
	return nil
}

// XSAVE returns the floating-point and vector registers as XSAVE's standard
// format has them (sections 4.42 and 4.134).
func (c *VCPU) XSAVE() ([]byte, error) {
	request := requestGetXSAVE
	if c.system.xsaveSize > minXSAVESize {
		request = requestGetXSAVE2
	}
	area := c.xsave.get()
	if err := ioctl(c.fd, request, area); err != nil {
		return nil, fmt.Errorf("kvm: get xsave area of vcpu %d: %w", c.id, err)
	}
	return append([]byte(nil), area[:c.system.xsaveSize]...), nil
}

// SetXSAVE sets the floating-point and vector registers (section 4.43). area
// must have XSAVESize bytes: ErrSize. Preconditions: SetXCRs.
func (c *VCPU) SetXSAVE(area []byte) error {
	if len(area) != c.system.xsaveSize {
		return fmt.Errorf("kvm: set xsave area of vcpu %d: %d bytes, host's has %d: %w", c.id, len(area), c.system.xsaveSize, ErrSize)
	}
	copy(c.xsave.get()[:], area)
	return set(c, requestSetXSAVE, "xsave area", c.xsave.get())
}

// XCR is an extended control register.
type XCR struct {
	Index uint32 `cbor:"index"`
	Value uint64 `cbor:"value"`
}

// MaxXCRs is how many there can be.
const MaxXCRs = len(gokvm.XCRS{}.Registers)

// XCRs returns the extended control registers (section 4.44).
func (c *VCPU) XCRs() ([]XCR, error) {
	a, err := get[gokvm.XCRS](c, requestGetXCRs, "extended control registers")
	if err != nil {
		return nil, err
	}
	list := make([]XCR, min(int(a.NrXRCS), MaxXCRs))
	for i := range list {
		list[i] = XCR{a.Registers[i].XRC, a.Registers[i].Value}
	}
	return list, nil
}

// SetXCRs sets the extended control registers (section 4.45), at most MaxXCRs:
// ErrSize.
func (c *VCPU) SetXCRs(list []XCR) error {
	if len(list) > MaxXCRs {
		return fmt.Errorf("kvm: set %d extended control registers of vcpu %d: %w", len(list), c.id, ErrSize)
	}
	a := gokvm.XCRS{NrXRCS: uint32(len(list))}
	for i, x := range list {
		a.Registers[i] = gokvm.XRC{XRC: x.Index, Value: x.Value}
	}
	return set(c, requestSetXCRs, "extended control registers", &a)
}
