// Package seccomptest asks filters in user space what the kernel would answer.
package seccomptest

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
)

// Filter is a compiled policy in a machine for its language.
type Filter struct {
	t  testing.TB
	vm *bpf.VM
}

// New compiles a policy; a failure ends the test.
func New(t testing.TB, p *seccomp.Policy) Filter {
	t.Helper()
	raw, err := p.Compile()
	if err != nil {
		t.Fatal(err)
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("filter has instructions that cannot be disassembled")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return Filter{t, vm}
}

// Call returns the answer to a call of our instruction set.
func (f Filter) Call(number uintptr, args ...uint64) seccomp.Action {
	f.t.Helper()
	return f.CallOf(unix.AUDIT_ARCH_X86_64, number, args...)
}

// CallOf returns the answer to a call of any instruction set (AUDIT_ARCH_…).
// Arguments that are not given are 0.
func (f Filter) CallOf(arch uint32, number uintptr, args ...uint64) seccomp.Action {
	f.t.Helper()
	// struct seccomp_data (linux/seccomp.h). The kernel loads words in the
	// machine's byte order, this VM in network order.
	data := make([]byte, 64)
	word := func(off int, v uint64) { binary.BigEndian.PutUint32(data[off:], uint32(v)) }
	word(0, uint64(number))
	word(4, uint64(arch))
	for i, a := range args {
		word(16+8*i, a)
		word(20+8*i, a>>32)
	}
	got, err := f.vm.Run(data)
	if err != nil {
		f.t.Fatal(err)
	}
	return seccomp.Action(got)
}

// All returns six arguments of the same value.
func All(v uint64) []uint64 { return []uint64{v, v, v, v, v, v} }

// CheckConditions checks that each alternative of each rule allows exactly what
// it says: other calls' arguments, or one bit flipped in either half, are
// refused unless another alternative allows them.
func CheckConditions(t *testing.T, p *seccomp.Policy) {
	t.Helper()
	f := New(t, p)
	check := func(r seccomp.Rule, args []uint64) {
		t.Helper()
		want := p.Refused
		if Holds(r.Allow, args) {
			want = seccomp.Allow
		}
		if got := f.Call(r.Number, args...); got != want {
			t.Errorf("call %d with %#x: %#x, want %#x", r.Number, args, uint32(got), uint32(want))
		}
	}
	for _, r := range p.Rules {
		for _, noise := range []uint64{0, 0x5a5a5a5a_a5a5a5a5, 1<<64 - 1} {
			check(r, All(noise))
			for _, alternative := range r.Allow {
				args := All(noise)
				for _, c := range alternative {
					args[c.Arg] = c.Value | noise&^c.Mask
				}
				check(r, args)
				for _, c := range alternative {
					for bit := range 64 {
						args[c.Arg] ^= 1 << bit
						check(r, args)
						args[c.Arg] ^= 1 << bit
					}
				}
			}
		}
	}
}

// Holds is what a [seccomp.When] means, written without a filter.
func Holds(w seccomp.When, args []uint64) bool {
	for _, alternative := range w {
		all := true
		for _, c := range alternative {
			all = all && args[c.Arg]&c.Mask == c.Value
		}
		if all {
			return true
		}
	}
	return false
}

// CheckForeign checks that no call of another instruction set and no x32 call
// is allowed, with arguments that rules like.
func CheckForeign(t *testing.T, p *seccomp.Policy) {
	t.Helper()
	f := New(t, p)
	const x32 = 0x4000_0000
	for number := range uintptr(1024) {
		for _, arch := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, 0} {
			if got := f.CallOf(arch, number); got != seccomp.Kill {
				t.Errorf("call %d of %#x: %#x", number, arch, uint32(got))
			}
		}
		if got := f.Call(x32 | number); got == seccomp.Allow {
			t.Errorf("x32 call %d is allowed", number)
		}
	}
	if got := f.Call(0xffff_ffff); got == seccomp.Allow {
		t.Error("call -1 is allowed")
	}
}
