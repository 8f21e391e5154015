package launch

import (
	"testing"

	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
	"thaw/internal/seccomp/seccomptest"
)

func TestPolicy(t *testing.T) {
	const (
		allow = seccomp.Allow
		high  = 1 << 32 // bits that the kernel does not look at
	)
	eperm, enosys := seccomp.Errno(unix.EPERM), seccomp.Errno(unix.ENOSYS)
	f := seccomptest.New(t, &policy)
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uint64
		want seccomp.Action
	}{
		{"read", unix.SYS_READ, nil, allow},
		{"execve", unix.SYS_EXECVE, nil, allow},
		{"clone3", unix.SYS_CLONE3, []uint64{0x7fff0000, 88}, allow},
		{"prlimit", unix.SYS_PRLIMIT64, nil, allow},
		{"setuid", unix.SYS_SETUID, []uint64{10001}, allow},
		{"mount", unix.SYS_MOUNT, nil, eperm},
		{"bpf", unix.SYS_BPF, nil, eperm},
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, nil, eperm},
		{"userfaultfd", unix.SYS_USERFAULTFD, nil, eperm},
		{"process_vm_readv", unix.SYS_PROCESS_VM_READV, nil, eperm},
		{"ptrace traceme", unix.SYS_PTRACE, []uint64{unix.PTRACE_TRACEME}, allow},
		{"ptrace detach", unix.SYS_PTRACE, []uint64{unix.PTRACE_DETACH, 5}, allow},
		{"ptrace cont", unix.SYS_PTRACE, []uint64{unix.PTRACE_CONT, 5}, allow},
		{"ptrace attach", unix.SYS_PTRACE, []uint64{unix.PTRACE_ATTACH, 5}, eperm},
		{"ptrace seize", unix.SYS_PTRACE, []uint64{unix.PTRACE_SEIZE, 5}, eperm},
		{"ptrace peek", unix.SYS_PTRACE, []uint64{unix.PTRACE_PEEKDATA, 5}, eperm},
		{"ptrace attach with high bits", unix.SYS_PTRACE, []uint64{high | unix.PTRACE_ATTACH, 5}, eperm},
		{"clone thread", unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_THREAD | unix.CLONE_SIGHAND | unix.CLONE_SETTLS}, allow},
		{"clone fork", unix.SYS_CLONE, []uint64{unix.CLONE_CHILD_SETTID | uint64(unix.SIGCHLD)}, allow},
		{"clone user namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, eperm},
		{"clone net namespace", unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, eperm},
		{"unshare files", unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES | unix.CLONE_FS}, allow},
		{"unshare user", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWUSER}, eperm},
		{"unshare time", unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWTIME}, eperm},
		{"unix socket", unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM, 0}, allow},
		{"tcp", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, allow},
		{"tcp by number", unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_TCP}, allow},
		{"udp6", unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_UDP}, allow},
		{"netlink route", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, allow},
		{"netlink audit", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, eperm},
		{"netlink netfilter", unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER}, eperm},
		{"netlink with high bits", unix.SYS_SOCKET, []uint64{high | unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT}, eperm},
		{"vsock", unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eperm},
		{"vsock with high bits", unix.SYS_SOCKET, []uint64{high | unix.AF_VSOCK, unix.SOCK_STREAM, 0}, eperm},
		{"packet", unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, eperm},
		{"alg", unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, eperm},
		{"x32 read", 0x40000000, nil, enosys},
		{"x32 bpf", 0x40000000 | unix.SYS_BPF, nil, enosys},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := f.Call(c.nr, c.args...); got != c.want {
				t.Errorf("filter says %#x, want %#x", uint32(got), uint32(c.want))
			}
		})
	}
}

// Nothing of what is denied can be had by arguments, and nothing that is not
// listed is touched.
func TestEveryCall(t *testing.T) {
	f := seccomptest.New(t, &policy)
	listed := map[uintptr]seccomp.Rule{}
	for _, r := range policy.Rules {
		if r.Why == "" {
			t.Errorf("call %d has no reason", r.Number)
		}
		listed[r.Number] = r
	}
	for number := range uintptr(1024) {
		want := seccomp.Allow
		if _, ok := listed[number]; ok {
			want = policy.Refused
		}
		if got := f.Call(number, seccomptest.All(1<<64-1)...); got != want {
			t.Errorf("call %d: %#x, want %#x", number, uint32(got), uint32(want))
		}
	}
}

func TestConditions(t *testing.T) { seccomptest.CheckConditions(t, &policy) }

func TestOtherInstructionSets(t *testing.T) { seccomptest.CheckForeign(t, &policy) }
