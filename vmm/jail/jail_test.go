package jail

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
	"thaw/internal/seccomp/seccomptest"
)

// policies are both lists: a machine's, and that of a handler of write faults.
var policies = map[string]*seccomp.Policy{"machine": Policy(), "handler": HandlerPolicy()}

// Every system call that the kernel may know, with arguments that are wrong for every condition.
func TestUnlistedCallsKill(t *testing.T) {
	for name, p := range policies {
		f := seccomptest.New(t, p)
		always := map[uintptr]bool{}
		for _, r := range p.Rules {
			always[r.Number] = len(r.Allow) == 1 && len(r.Allow[0]) == 0
		}
		for number := range uintptr(1024) {
			want := seccomp.Kill
			if always[number] {
				want = seccomp.Allow
			}
			if got := f.Call(number, seccomptest.All(0xffffffff_ffffffff)...); got != want {
				t.Errorf("%s: call %d: %#x, want %#x", name, number, uint32(got), uint32(want))
			}
		}
	}
}

func TestConditions(t *testing.T) {
	for _, p := range policies {
		seccomptest.CheckConditions(t, p)
	}
}

// The same numbers mean other calls elsewhere.
func TestOtherInstructionSets(t *testing.T) {
	for _, p := range policies {
		seccomptest.CheckForeign(t, p)
	}
}

// What the policy leaves out on purpose is not let in by a slip of a number.
func TestNotHere(t *testing.T) {
	f := seccomptest.New(t, Policy())
	for name, number := range map[string]uintptr{
		"open": unix.SYS_OPEN, "openat": unix.SYS_OPENAT, "openat2": unix.SYS_OPENAT2, "socket": unix.SYS_SOCKET,
		"connect": unix.SYS_CONNECT, "bind": unix.SYS_BIND, "execve": unix.SYS_EXECVE, "execveat": unix.SYS_EXECVEAT,
		"clone3": unix.SYS_CLONE3, "fork": unix.SYS_FORK, "vfork": unix.SYS_VFORK, "kill": unix.SYS_KILL,
		"ptrace": unix.SYS_PTRACE, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
		"process_vm_writev": unix.SYS_PROCESS_VM_WRITEV, "mount": unix.SYS_MOUNT, "bpf": unix.SYS_BPF,
		"io_uring_setup": unix.SYS_IO_URING_SETUP, "memfd_create": unix.SYS_MEMFD_CREATE,
		"userfaultfd": unix.SYS_USERFAULTFD, "mremap": unix.SYS_MREMAP, "mprotect": unix.SYS_MPROTECT,
		"ftruncate": unix.SYS_FTRUNCATE, "prlimit64": unix.SYS_PRLIMIT64, "seccomp": unix.SYS_SECCOMP,
	} {
		for _, v := range []uint64{0, 1, Control, threadFlags} {
			if got := f.Call(number, seccomptest.All(v)...); got != seccomp.Kill {
				t.Errorf("%s with arguments %d: %#x", name, v, uint32(got))
			}
		}
	}
}

// KVM_RUN must be decided early: the kernel runs the filter for it every time.
func TestRunIsFirst(t *testing.T) {
	if Policy().Rules[0].Number != unix.SYS_IOCTL || Requests[0].Name != "KVM_RUN" {
		t.Errorf("first rule is call %d, first request %s", Policy().Rules[0].Number, Requests[0].Name)
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

// No driver but KVM, one request of a page map's, and four of userfaultfd: the type
// byte of an ioctl number (ioctl(2)) is the driver's.
func TestRequestsAreOfKVM(t *testing.T) {
	const kvmType = 0xae
	others := map[string]uint32{"PAGEMAP_SCAN": 'f', "USERFAULTFD_IOC_NEW": 0xaa, "UFFDIO_API": 0xaa, "UFFDIO_REGISTER": 0xaa, "UFFDIO_COPY": 0xaa}
	for _, r := range Requests {
		want, ok := others[r.Name]
		if !ok {
			want = kvmType
		}
		if got := r.Number >> 8 & 0xff; got != want {
			t.Errorf("%s: type %#x, want %#x", r.Name, got, want)
		}
	}
}

// Every rule names who needs it: packages of the program, or what Go or the kernel does by itself.
func TestRulesNameTheirCallers(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "thaw/cmd/thaw-vmm").Output()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"kernel": true} // which restarts calls
	for p := range strings.FieldsSeq(string(out)) {
		known[strings.TrimPrefix(p, "thaw/")] = true
	}
	for _, r := range slices.Concat(Policy().Rules, HandlerPolicy().Rules) {
		for clause := range strings.SplitSeq(r.Why, "; ") {
			callers, _, _ := strings.Cut(clause, ":")
			for c := range strings.SplitSeq(callers, ", ") {
				if !known[c] {
					t.Errorf("call %d: %q is no package of thaw-vmm", r.Number, c)
				}
			}
		}
	}
}
