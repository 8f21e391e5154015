package vmm

import (
	"errors"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"thaw/internal/kvm"
	"thaw/virtio"
)

// FuzzState decodes states as a hostile file could have them: what validate
// lets through must be safe to hand to KVM, and a timer's deadline must not
// become zero, which would disarm it.
func FuzzState(f *testing.F) {
	good, err := cbor.Marshal(VCPUState{
		XCRs: []kvm.XCR{{Value: 7}}, XSAVE: make([]byte, 64), LAPIC: make([]byte, kvm.LAPICSize),
		MSRs: []kvm.MSR{{Index: msrTSC, Value: 100}, {Index: msrTSCDeadline, Value: 200}, {Index: kvm.MSRPVM, Value: 0x400}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, uint64(1<<63))
	f.Add(good[:len(good)/2], uint64(0))
	f.Fuzz(func(t *testing.T, b []byte, now uint64) {
		var s VCPUState
		if cbor.Unmarshal(b, &s) != nil {
			return
		}
		if err := s.validate(); err != nil {
			if !errors.Is(err, virtio.ErrState) {
				t.Fatalf("err %v is not typed", err)
			}
			return
		}
		if len(s.LAPIC) != kvm.LAPICSize || len(s.XSAVE) > maxStateXSAVE || len(s.XCRs) > kvm.MaxXCRs || len(s.MSRs) > maxStateMSRs {
			t.Fatalf("bounds are not kept: %+v", s)
		}
		for _, pvm := range []bool{false, true} {
			p := planMSRs(s.MSRs, pvm)
			if len(p.registers) > len(s.MSRs) {
				t.Fatalf("%d registers of %d", len(p.registers), len(s.MSRs))
			}
			if p.deadline != 0 && moveDeadline(p.deadline, p.tsc, now) == 0 {
				t.Fatalf("deadline %d at %d, now %d: disarmed", p.deadline, p.tsc, now)
			}
		}
	})
}
