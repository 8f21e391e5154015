package launch

import (
	seccomp "github.com/elastic/go-seccomp-bpf"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied are system calls that no job has a use for. Most need a capability
// that jobs lack anyway; they are listed because a bug behind such a check is
// how kernels are broken. They fail with EPERM.
var denied = []string{
	// File systems and namespaces.
	"mount", "umount2", "pivot_root", "chroot", "move_mount", "open_tree", "fsopen", "fsconfig", "fsmount",
	"fspick", "mount_setattr", "setns", "swapon", "swapoff", "quotactl", "quotactl_fd", "acct",
	"open_by_handle_at", "fanotify_init",
	// The kernel itself.
	"init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "syslog",
	"bpf", "perf_event_open", "lookup_dcookie", "nfsservctl", "iopl", "ioperm",
	// Large attack surfaces without a user among jobs.
	"userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register", "keyctl", "add_key", "request_key",
	"vmsplice",
	// Other processes' memory and descriptors.
	"process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise",
	// Machine-wide state.
	"settimeofday", "clock_settime", "clock_adjtime", "sethostname", "setdomainname", "vhangup",
}

// namespaceFlags are the clone flags that make namespaces. clone3 hides its
// flags from a filter; there the sysctl user.max_user_namespaces=0 and the
// lack of CAP_SYS_ADMIN refuse the same. (Failing clone3 with ENOSYS, the
// usual way, would cost every thread and process start a system call, and
// the launcher itself needs it to fork into a cgroup.)
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// policy returns the deny list that every job runs under.
//
// Conditions compare all 64 bits of an argument, but the kernel reads only 32
// of most. So arguments are allowed by value (NotEqual to all of the allowed
// ones denies, whatever the upper half holds) and never denied by value.
func policy() seccomp.Policy {
	notEqual := func(arg uint32, values ...uint64) seccomp.ArgumentConditions {
		var c seccomp.ArgumentConditions
		for _, v := range values {
			c = append(c, seccomp.Condition{Argument: arg, Operation: seccomp.NotEqual, Value: v})
		}
		return c
	}
	bitsSet := func(arg uint32, mask uint64) seccomp.ArgumentConditions {
		return seccomp.ArgumentConditions{{Argument: arg, Operation: seccomp.BitsSet, Value: mask}}
	}
	return seccomp.Policy{
		DefaultAction: seccomp.ActionAllow,
		Syscalls: []seccomp.SyscallGroup{{
			Action: seccomp.ActionErrno, // EPERM
			Names:  denied,
			NamesWithCondtions: []seccomp.NameWithConditions{
				// The launcher's child asks to be traced, and the launcher
				// lets it go; tracing others needs more than these. Yama
				// (ptrace_scope=2) refuses all of it to jobs.
				{Name: "ptrace", Conditions: notEqual(0, unix.PTRACE_TRACEME, unix.PTRACE_CONT, unix.PTRACE_DETACH)},
				{Name: "unshare", Conditions: bitsSet(0, namespaceFlags)},
				{Name: "clone", Conditions: bitsSet(0, namespaceFlags)},
				// No vsock: the agent's peers on the host are not for jobs.
				// No packet, ALG, or other rare families either.
				{Name: "socket", Conditions: notEqual(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK)},
				// Of netlink only routes, which getifaddrs asks for.
				{Name: "socket", Conditions: append(notEqual(2, unix.NETLINK_ROUTE),
					notEqual(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6)...)},
			},
		}},
	}
}

// program assembles the policy. Calls by another architecture's table (int
// 0x80) end the process: the library's check would let them through with an
// allowing default. x32 calls fail with ENOSYS.
func program() ([]bpf.RawInstruction, error) {
	p := policy()
	insns, err := p.Assemble()
	if err != nil {
		return nil, err
	}
	const archOffset = 4 // struct seccomp_data
	prefix := []bpf.Instruction{
		bpf.LoadAbsolute{Off: archOffset, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.AUDIT_ARCH_X86_64, SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_KILL_PROCESS},
	}
	return bpf.Assemble(append(prefix, insns...))
}
