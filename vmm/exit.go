package vmm

import "time"

// Reason is why a machine ended.
type Reason string

// Reasons.
const (
	Poweroff    Reason = "poweroff"     // the guest switched itself off
	Reset       Reason = "reset"        // the guest asked for a reset, which ends a machine
	TripleFault Reason = "triple_fault" // as reboot=t ends, and as a broken kernel ends
	Panic       Reason = "panic"        // the guest's kernel panicked
	Stopped     Reason = "stopped"      // Stop, or the context of Run
	Internal    Reason = "internal"     // KVM or the VMM could not go on
)

// Exit tells how a machine ended.
type Exit struct {
	Reason Reason
	Detail string
	// Console is what is kept of the guest's console output.
	Console []byte
}

// Phase is a step of starting a machine and how long it took.
type Phase struct {
	Name     string
	Duration time.Duration
}

// phases records steps one after the other.
type phases struct {
	list []Phase
	last time.Time
}

func startPhases() phases { return phases{last: time.Now()} }

func (p *phases) done(name string) {
	now := time.Now()
	p.list = append(p.list, Phase{name, now.Sub(p.last)})
	p.last = now
}
