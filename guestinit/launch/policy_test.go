package launch

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// decide runs the filter on one system call, in the order of struct
// seccomp_data, and returns the filter's answer.
func decide(t *testing.T, arch uint32, nr uint32, args ...uint64) uint32 {
	t.Helper()
	raw, err := program()
	if err != nil {
		t.Fatal(err)
	}
	insns, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("filter holds unknown instructions")
	}
	vm, err := bpf.NewVM(insns)
	if err != nil {
		t.Fatal(err)
	}
	// The VM loads big-endian words, the kernel native ones: each word is
	// stored reversed.
	data := make([]byte, 64)
	put := func(off int, v uint32) { binary.BigEndian.PutUint32(data[off:], v) }
	put(0, nr)
	put(4, arch)
	for i, a := range args {
		put(16+8*i, uint32(a))
		put(20+8*i, uint32(a>>32))
	}
	n, err := vm.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	return uint32(n)
}

func TestPolicy(t *testing.T) {
	const (
		allow = unix.SECCOMP_RET_ALLOW
		eperm = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		high  = 1 << 32 // bits that the kernel does not look at
	)
	for _, c := range []struct {
		name string
		nr   uint32
		args []uint64
		want uint32
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
		{"x32 read", 0x40000000, nil, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
		{"x32 bpf", 0x40000000 | unix.SYS_BPF, nil, unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := decide(t, unix.AUDIT_ARCH_X86_64, c.nr, c.args...); got != c.want {
				t.Errorf("filter says 0x%08x, want 0x%08x", got, c.want)
			}
		})
	}
	t.Run("other architecture", func(t *testing.T) {
		if got := decide(t, unix.AUDIT_ARCH_I386, unix.SYS_READ); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Errorf("filter says 0x%08x", got)
		}
	})
	for _, name := range denied {
		if name == "" {
			t.Error("empty name in the list")
		}
	}
}
