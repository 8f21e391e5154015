package vmm

import (
	"thaw/internal/kvm"
)

// Registers that a restore treats each in its own way (Intel SDM volume 4).
const (
	msrTSC         = 0x10
	msrTSCDeadline = 0x6e0
)

// refusable are registers that a host lists and reads but may refuse to set
// although nothing is wrong, and why the guest does not miss them.
var refusable = map[uint32]string{
	0xc000_0103: "TSC_AUX: some pvm hosts refuse it, and none lets a guest see its own; the guest kernel does not use it there",
}

// mayRefuse lets a refusal pass where it is known to do no harm.
func mayRefuse(e *kvm.RefusedMSR) error {
	if _, ok := refusable[e.MSR.Index]; ok {
		return nil
	}
	return e
}

// msrPlan is how saved registers are set: registers in order, then the
// deadline, when it is not zero, moved by how much the TSC has moved since it
// read tsc.
type msrPlan struct {
	registers     []kvm.MSR
	deadline, tsc uint64
}

// planMSRs orders saved registers. The TSC comes first: others count from it.
// On pvm hosts it is not set at all: a guest there reads the host's own
// counter, whatever KVM is told.
//
// FS, GS and KERNEL_GS base and pvm's own register keep the place that
// StateMSRs gave them, behind all others. A deadline of zero is a timer that is
// not armed; it is set with the rest, to disarm one that a machine rolled back
// in place may have.
func planMSRs(saved []kvm.MSR, pvm bool) msrPlan {
	var p msrPlan
	p.registers = make([]kvm.MSR, 0, len(saved))
	for _, r := range saved {
		if r.Index == msrTSC {
			p.tsc = r.Value
			if !pvm {
				p.registers = append(p.registers, r)
			}
		}
	}
	for _, r := range saved {
		switch {
		case r.Index == msrTSC:
		case r.Index == msrTSCDeadline && r.Value != 0:
			p.deadline = r.Value
		default:
			p.registers = append(p.registers, r)
		}
	}
	return p
}

// moveDeadline returns the deadline of a timer that was to fire when the TSC,
// which read saved, reached deadline, for a TSC that reads now: as many cycles
// ahead as it was, or at once.
//
// The saved value itself would not do. Where the guest reads the host's TSC it
// is in the past by the time of a restore, and every timer of the guest would
// fire at once; or, when the host was restarted, hours ahead, and an idle guest
// would sleep as long. Where KVM gives the guest a TSC of its own, a processor
// that is rolled back within a second keeps counting where it was: KVM takes
// the write for an attempt to synchronise processors (kvm_synchronize_tsc).
func moveDeadline(deadline, saved, now uint64) uint64 {
	ahead := int64(deadline - saved)
	if ahead <= 0 {
		return max(now, 1) // in the past; zero would disarm the timer
	}
	if sum := now + uint64(ahead); sum >= now {
		return sum
	}
	return ^uint64(0)
}
