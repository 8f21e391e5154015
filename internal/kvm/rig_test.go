package kvm

import (
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/kvmtest"
)

// rig is a machine with one processor and 2 MiB of memory at zero. Its page
// tables map that memory onto itself; code at codeAddress runs in 64-bit mode,
// the only one that every kind of KVM can run.
type rig struct {
	system *System
	vm     *VM
	vcpu   *VCPU
	memory []byte
}

const (
	rigMemory   = 2 << 20
	codeAddress = 0x10_0000
)

func newRig(t testing.TB, prepare func(*VM)) *rig {
	t.Helper()
	system, err := Open(kvmtest.Device(t))
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{system: system}
	if r.vm, err = system.NewVM(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.vm.Close() })
	if r.memory, err = unix.Mmap(-1, 0, rigMemory, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(r.memory) })
	if prepare != nil {
		prepare(r.vm)
	}
	if err := r.vm.SetMemory(0, 0, r.memory, false); err != nil {
		t.Fatal(err)
	}
	if err := r.vm.CreateIRQChip(); err != nil {
		t.Fatal(err)
	}
	if r.vcpu, err = r.vm.NewVCPU(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.vcpu.Close(); err != nil {
			t.Error(err)
		}
	})
	cpuid, err := system.SupportedCPUID()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.vcpu.SetCPUID(cpuid); err != nil {
		t.Fatal(err)
	}
	return r
}

// start puts code at codeAddress and the processor there.
func (r *rig) start(t *testing.T, code []byte) {
	t.Helper()
	copy(r.memory[codeAddress:], code)
	// One entry in each table: a page of 2 MiB at zero.
	copy(r.memory[0x1000:], []byte{0x03, 0x20})
	copy(r.memory[0x2000:], []byte{0x03, 0x30})
	copy(r.memory[0x3000:], []byte{0x83})
	s, err := r.vcpu.Sregs()
	if err != nil {
		t.Fatal(err)
	}
	s.CR0, s.CR3, s.CR4, s.EFER = 0x8005_0033, 0x1000, 1<<5, 1<<10|1<<8
	s.CS.Base, s.CS.Limit, s.CS.Selector, s.CS.Typ, s.CS.Present, s.CS.S, s.CS.L, s.CS.G, s.CS.DB = 0, 0xffff_ffff, 0x10, 11, 1, 1, 1, 1, 0
	s.SS.Base, s.SS.Limit, s.SS.Selector, s.SS.Typ, s.SS.Present, s.SS.S, s.SS.G, s.SS.DB = 0, 0xffff_ffff, 0x18, 3, 1, 1, 1, 1
	s.DS, s.ES = s.SS, s.SS
	if err := r.vcpu.SetSregs(s); err != nil {
		t.Fatal(err)
	}
	if err := r.vcpu.SetRegs(Regs{RIP: codeAddress, RFLAGS: 2}); err != nil {
		t.Fatal(err)
	}
}

// runToPort runs until the guest writes to an I/O port.
func (r *rig) runToPort(t *testing.T) {
	t.Helper()
	for {
		interrupted, err := r.vcpu.Run()
		if err != nil {
			t.Fatal(err)
		}
		if interrupted {
			continue
		}
		if r.vcpu.ExitReason() != ExitIO {
			t.Fatal(r.vcpu.Describe())
		}
		return
	}
}
