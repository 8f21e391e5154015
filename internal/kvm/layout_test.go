package kvm

import (
	"testing"
	"unsafe"
)

// TestLayout compares with what sizeof and offsetof of <linux/kvm.h> give on
// x86-64.
func TestLayout(t *testing.T) {
	var i irqfd
	var e ioeventfd
	for name, c := range map[string]struct{ got, want uintptr }{
		"struct kvm_irqfd":         {unsafe.Sizeof(i), 32},
		"kvm_irqfd.fd":             {unsafe.Offsetof(i.fd), 0},
		"kvm_irqfd.gsi":            {unsafe.Offsetof(i.gsi), 4},
		"struct kvm_ioeventfd":     {unsafe.Sizeof(e), 64},
		"kvm_ioeventfd.datamatch":  {unsafe.Offsetof(e.datamatch), 0},
		"kvm_ioeventfd.addr":       {unsafe.Offsetof(e.addr), 8},
		"kvm_ioeventfd.len":        {unsafe.Offsetof(e.length), 16},
		"kvm_ioeventfd.fd":         {unsafe.Offsetof(e.fd), 20},
		"kvm_ioeventfd.flags":      {unsafe.Offsetof(e.flags), 24},
		"kvm_run.immediate_exit":   {runImmediateExit, 1},
		"kvm_run.exit_reason":      {runExitReason, 8},
		"kvm_run.io, kvm_run.mmio": {runUnion, 32},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", name, c.got, c.want)
		}
	}
}
