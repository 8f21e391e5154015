package jail

import (
	"encoding/binary"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// filter runs the assembled policy in user space.
type filter struct{ vm *bpf.VM }

func newFilter(t testing.TB) filter {
	t.Helper()
	raw, err := Compile(Policy)
	if err != nil {
		t.Fatal(err)
	}
	return filterOf(t, raw)
}

func filterOf(t testing.TB, raw []bpf.RawInstruction) filter {
	t.Helper()
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("filter has instructions that cannot be disassembled")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	return filter{vm}
}

// verdict gives the filter a struct seccomp_data (linux/seccomp.h). The VM reads network byte order, the kernel
// the machine's: each word is written as the VM will read it.
func (f filter) verdict(t testing.TB, architecture uint32, nr uint32, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	word := func(off int, v uint32) { binary.BigEndian.PutUint32(data[off:], v) }
	word(0, nr)
	word(4, architecture)
	for i, a := range args {
		word(16+8*i, uint32(a))
		word(20+8*i, uint32(a>>32))
	}
	got, err := f.vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(got)
}

const (
	allowed = unix.SECCOMP_RET_ALLOW
	killed  = unix.SECCOMP_RET_KILL_PROCESS
)

// Every system call that the kernel may know, with arguments that are wrong for every condition.
func TestUnlistedCallsKill(t *testing.T) {
	f := newFilter(t)
	names := arch.X86_64.SyscallNumbers
	listed := map[string]Rule{}
	for _, r := range Policy {
		if _, twice := listed[r.Name]; twice {
			t.Errorf("%s is listed twice", r.Name)
		}
		if r.Who == "" {
			t.Errorf("%s: nobody needs it", r.Name)
		}
		if nr, ok := arch.X86_64.SyscallNames[r.Name]; !ok || nr != int(r.Number) {
			t.Errorf("%s is call %d, not %d", r.Name, nr, r.Number)
		}
		listed[r.Name] = r
	}
	for nr := range uint32(1024) {
		rule, ok := listed[names[int(nr)]]
		want := uint32(killed)
		if ok && rule.Any == nil {
			want = allowed
		}
		if got := f.verdict(t, unix.AUDIT_ARCH_X86_64, nr, all(0xffffffff_ffffffff)...); got != want {
			t.Errorf("call %d (%s): %#x, want %#x", nr, names[int(nr)], got, want)
		}
	}
	if len(listed) != len(Policy) {
		t.Errorf("%d rules, %d names", len(Policy), len(listed))
	}
}

// Each alternative of each rule allows exactly its values: one bit flipped, in either half, kills.
func TestConditions(t *testing.T) {
	f := newFilter(t)
	for _, r := range Policy {
		nr := uint32(r.Number)
		listed := map[uint64]bool{}
		for _, conditions := range r.Any {
			for _, c := range conditions {
				if c.Op == Equal {
					listed[c.Val] = true
				}
			}
		}
		for _, conditions := range r.Any {
			for _, c := range conditions {
				args := all(0x5a5a5a5a_5a5a5a5a)
				check := func(v uint64, want uint32) {
					args[c.Arg] = v
					if got := f.verdict(t, unix.AUDIT_ARCH_X86_64, nr, args...); got != want {
						t.Errorf("%s with argument %d = %#x: %#x, want %#x", r.Name, c.Arg, v, got, want)
					}
				}
				if c.Op == NoBits {
					check(^c.Val, allowed)
					check(c.Val, killed)
					check(^uint64(0), killed)
					continue
				}
				check(c.Val, allowed)
				for bit := range 64 {
					if v := c.Val ^ 1<<bit; !listed[v] {
						check(v, killed)
					}
				}
			}
		}
	}
}

// The same numbers mean other calls elsewhere.
func TestOtherInstructionSets(t *testing.T) {
	f := newFilter(t)
	for nr := range uint32(1024) {
		for _, other := range []uint32{unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, 0} {
			if got := f.verdict(t, other, nr, all(0)...); got != killed {
				t.Errorf("call %d of %#x: %#x", nr, other, got)
			}
		}
		if got := f.verdict(t, unix.AUDIT_ARCH_X86_64, nr|0x40000000, all(0)...); got != killed {
			t.Errorf("x32 call %d: %#x", nr, got)
		}
	}
}

// All conditions of an alternative must hold.
func TestConjunction(t *testing.T) {
	raw, err := Compile([]Rule{{"two", 5, [][]Cond{{{0, Equal, 1}, {5, NoBits, 6}}, {{2, Equal, 1 << 40}}}, "test"}})
	if err != nil {
		t.Fatal(err)
	}
	f := filterOf(t, raw)
	for _, tc := range []struct {
		args []uint64
		want uint32
	}{
		{[]uint64{1, 0, 0, 0, 0, 8}, allowed},
		{[]uint64{1, 0, 0, 0, 0, 2}, killed},
		{[]uint64{2, 0, 0, 0, 0, 8}, killed},
		{[]uint64{2, 0, 1 << 40, 0, 0, 2}, allowed},
		{[]uint64{1, 0, 1 << 40, 0, 0, 8}, allowed},
	} {
		if got := f.verdict(t, unix.AUDIT_ARCH_X86_64, 5, tc.args...); got != tc.want {
			t.Errorf("%v: %#x, want %#x", tc.args, got, tc.want)
		}
	}
	for _, bad := range []Cond{{-1, Equal, 0}, {6, Equal, 0}, {0, 99, 0}} {
		if _, err := Compile([]Rule{{"bad", 5, [][]Cond{{bad}}, "test"}}); err == nil {
			t.Errorf("%+v compiled", bad)
		}
	}
}

// KVM_RUN must be decided early: the kernel runs the filter for it every time.
func TestRunIsFirst(t *testing.T) {
	if Policy[0].Name != "ioctl" || Requests[0].Name != "KVM_RUN" {
		t.Errorf("first rule is %s, first request %s", Policy[0].Name, Requests[0].Name)
	}
}

func TestRequestsAreUnique(t *testing.T) {
	seen := map[uint32]string{}
	for _, r := range Requests {
		if other, ok := seen[r.Number]; ok {
			t.Errorf("%s and %s are both %#x", r.Name, other, r.Number)
		}
		seen[r.Number] = r.Name
	}
}

func all(v uint64) []uint64 { return []uint64{v, v, v, v, v, v} }

// No driver but KVM: the type byte of an ioctl number (ioctl(2)) is the driver's.
func TestRequestsAreOfKVM(t *testing.T) {
	const kvmType = 0xae
	for _, r := range Requests {
		if got := r.Number >> 8 & 0xff; got != kvmType {
			t.Errorf("%s: type %#x", r.Name, got)
		}
	}
}
