package kvm

import (
	gokvm "github.com/bobuhiro11/gokvm/kvm"
)

// Events are exceptions, interrupts and NMIs that a processor has yet to take
// (struct kvm_vcpu_events).
type Events = gokvm.VCPUEvents

// Flags of Events that say which fields are valid (section 4.32).
const (
	EventNMIPending  = 1 << 0 // KVM_VCPUEVENT_VALID_NMI_PENDING
	EventSIPIVector  = 1 << 1 // KVM_VCPUEVENT_VALID_SIPI_VECTOR
	EventShadow      = 1 << 2 // KVM_VCPUEVENT_VALID_SHADOW
	EventSMM         = 1 << 3 // KVM_VCPUEVENT_VALID_SMM
	EventPayload     = 1 << 4 // KVM_VCPUEVENT_VALID_PAYLOAD
	EventTripleFault = 1 << 5 // KVM_VCPUEVENT_VALID_TRIPLE_FAULT
)

// Events returns what the processor has yet to take (section 4.31).
func (c *VCPU) Events() (Events, error) { return get[Events](c, requestGetEvents, "events") }

// SetEvents sets what the processor has yet to take (section 4.32).
func (c *VCPU) SetEvents(e Events) error { return set(c, requestSetEvents, "events", &e) }

// States of a processor among others, section 4.38 (KVM_MP_STATE_…).
const (
	MPRunnable      = 0
	MPUninitialized = 1 // waits for INIT
	MPInitReceived  = 2 // waits for the start-up IPI
	MPHalted        = 3
	MPSIPIReceived  = 4
)

// MPState returns what the processor waits for, if anything (section 4.38).
func (c *VCPU) MPState() (uint32, error) {
	s, err := get[gokvm.MPState](c, requestGetMPState, "mp state")
	return s.State, err
}

// SetMPState sets what the processor waits for (section 4.39).
func (c *VCPU) SetMPState(state uint32) error {
	return set(c, requestSetMPState, "mp state", &gokvm.MPState{State: state})
}
