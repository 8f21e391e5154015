package kvm

import (
	"errors"
	"slices"
	"testing"
)

func TestStateMSRs(t *testing.T) {
	r := newRig(t, nil)
	list, err := r.vcpu.StateMSRs()
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint32{MSRFSBase, MSRGSBase, MSRKernelGSBase} {
		if !slices.Contains(list, index) {
			t.Errorf("msr %#x is not in the list", index)
		}
	}
	values, err := r.vcpu.MSRs(append([]uint32{0xdead_0001}, list...))
	if err != nil || len(values) != len(list) {
		t.Errorf("%d values of %d, one register does not exist: %v", len(values), len(list), err)
	}
	features, err := r.system.MSRFeatureList()
	if err != nil || len(features) == 0 {
		t.Errorf("features %v, %v", features, err)
	}
}

func TestRefusedMSR(t *testing.T) {
	r := newRig(t, nil)
	list := []MSR{{Index: 0xdead_0001}, {Index: MSRKernelGSBase, Value: 0x5000}}
	var refused []uint32
	err := r.vcpu.SetMSRs(list, func(e *RefusedMSR) error {
		refused = append(refused, e.MSR.Index)
		return nil
	})
	if err != nil || !slices.Equal(refused, []uint32{0xdead_0001}) {
		t.Errorf("refused %x, %v", refused, err)
	}
	v, err := r.vcpu.MSRs([]uint32{MSRKernelGSBase})
	if err != nil || len(v) != 1 || v[0].Value != 0x5000 {
		t.Errorf("the one after it: %v, %v", v, err)
	}
	var want *RefusedMSR
	if err := r.vcpu.SetMSRs(list, func(e *RefusedMSR) error { return e }); !errors.As(err, &want) {
		t.Errorf("err %v", err)
	}
}

func TestSizes(t *testing.T) {
	r := newRig(t, nil)
	for name, err := range map[string]error{
		"xsave":   r.vcpu.SetXSAVE(make([]byte, r.system.XSAVESize()-1)),
		"xcrs":    r.vcpu.SetXCRs(make([]XCR, MaxXCRs+1)),
		"pic":     r.vm.SetIRQChip(PICSlave, make([]byte, IOAPICSize)),
		"io apic": r.vm.SetIRQChip(IOAPIC, make([]byte, PICSize)),
	} {
		if !errors.Is(err, ErrSize) {
			t.Errorf("%s: err %v, want %v", name, err, ErrSize)
		}
	}
}

func TestClock(t *testing.T) {
	r := newRig(t, nil)
	const start = 1 << 50
	if err := r.vm.SetClock(start); err != nil {
		t.Fatal(err)
	}
	if ns, err := r.vm.Clock(); err != nil || ns < start || ns > start+1e10 {
		t.Errorf("clock %d, %v", ns, err)
	}
	if err := r.vcpu.ClockStopped(); err != nil {
		t.Error(err)
	}
	if khz, err := r.vcpu.TSCKHz(); err != nil || khz < 100_000 {
		t.Errorf("tsc %d kHz, %v", khz, err)
	}
}

// BenchmarkState measures each request that a save or a restore makes.
func BenchmarkState(b *testing.B) {
	r := newRig(b, nil)
	c, vm := r.vcpu, r.vm
	known, err := c.StateMSRs()
	if err != nil {
		b.Fatal(err)
	}
	pair(b, "regs", c.Regs, c.SetRegs)
	pair(b, "sregs", c.Sregs, c.SetSregs)
	pair(b, "xsave", c.XSAVE, c.SetXSAVE)
	pair(b, "xcrs", c.XCRs, c.SetXCRs)
	pair(b, "debugregs", c.DebugRegs, c.SetDebugRegs)
	pair(b, "lapic", c.LAPIC, c.SetLAPIC)
	pair(b, "mpstate", c.MPState, c.SetMPState)
	pair(b, "msrs", func() ([]MSR, error) { return c.MSRs(known) }, func(l []MSR) error {
		return c.SetMSRs(l, func(e *RefusedMSR) error { return e })
	})
	pair(b, "events", c.Events, c.SetEvents)
	for name, id := range map[string]uint32{"pic": PICMaster, "ioapic": IOAPIC} {
		pair(b, name, func() ([]byte, error) { return vm.IRQChip(id) }, func(s []byte) error { return vm.SetIRQChip(id, s) })
	}
	pair(b, "clock", vm.Clock, vm.SetClock)
}

func pair[T any](b *testing.B, name string, get func() (T, error), set func(T) error) {
	b.Run("get/"+name, func(b *testing.B) {
		for b.Loop() {
			if _, err := get(); err != nil {
				b.Fatal(err)
			}
		}
	})
	v, err := get()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("set/"+name, func(b *testing.B) {
		for b.Loop() {
			if err := set(v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestUnmasked(t *testing.T) {
	const taken = 10
	state := make([]byte, IOAPICSize)
	for line := range 24 {
		state[24+8*line+2] = 1 // the mask, bit 16
	}
	state[24+8*taken+2] = 0xfe
	for line := range uint32(24) {
		if got := Unmasked(state, line); got != (line == taken) {
			t.Errorf("line %d unmasked: %v", line, got)
		}
	}
}
