package launch

import (
	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
)

// namespaceFlags are the clone flags that make namespaces. clone3 hides its
// flags from a filter; there the sysctl user.max_user_namespaces=0 and the
// lack of CAP_SYS_ADMIN refuse the same. (Failing clone3 with ENOSYS, the
// usual way, would cost every thread and process start a system call, and
// the launcher itself needs it to fork into a cgroup.)
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// policy is the list that every job runs under. It denies, with EPERM, what no
// job has a use for. Most of it needs a capability that jobs lack anyway; it is
// listed because a bug behind such a check is how kernels are broken.
//
// The kernel reads only 32 bits of most arguments and the filter all 64, so
// arguments are allowed by value and never denied by value.
var policy = seccomp.Policy{
	Unlisted: seccomp.Allow,
	Refused:  seccomp.Errno(unix.EPERM),
	Rules: []seccomp.Rule{
		limited(unix.SYS_CLONE, seccomp.NoBits(0, namespaceFlags), "no namespaces"),
		limited(unix.SYS_UNSHARE, seccomp.NoBits(0, namespaceFlags), "no namespaces"),
		// No vsock: the agent's peers on the host are not for jobs. No
		// packet, ALG, or other rare families either.
		limited(unix.SYS_SOCKET, seccomp.When{
			{seccomp.Is(0, unix.AF_UNIX)},
			{seccomp.Is(0, unix.AF_INET)},
			{seccomp.Is(0, unix.AF_INET6)},
			{seccomp.Is(0, unix.AF_NETLINK), seccomp.Is(2, unix.NETLINK_ROUTE)},
		}, "usual families, and of netlink only what getifaddrs asks for"),
		// Tracing others needs more than these. Yama (ptrace_scope=2) refuses
		// all of it to jobs.
		limited(unix.SYS_PTRACE, seccomp.OneOf(0, unix.PTRACE_TRACEME, unix.PTRACE_CONT, unix.PTRACE_DETACH),
			"the launcher's child asks to be traced, and the launcher lets it go"),

		denied(unix.SYS_MOUNT, mounts), denied(unix.SYS_UMOUNT2, mounts), denied(unix.SYS_PIVOT_ROOT, mounts),
		denied(unix.SYS_CHROOT, mounts), denied(unix.SYS_MOVE_MOUNT, mounts), denied(unix.SYS_OPEN_TREE, mounts),
		denied(unix.SYS_OPEN_TREE_ATTR, mounts), denied(unix.SYS_FSOPEN, mounts), denied(unix.SYS_FSCONFIG, mounts),
		denied(unix.SYS_FSMOUNT, mounts), denied(unix.SYS_FSPICK, mounts), denied(unix.SYS_MOUNT_SETATTR, mounts),
		denied(unix.SYS_SETNS, mounts), denied(unix.SYS_SWAPON, mounts), denied(unix.SYS_SWAPOFF, mounts),
		denied(unix.SYS_QUOTACTL, mounts), denied(unix.SYS_QUOTACTL_FD, mounts), denied(unix.SYS_ACCT, mounts),
		denied(unix.SYS_OPEN_BY_HANDLE_AT, mounts), denied(unix.SYS_FANOTIFY_INIT, mounts),

		denied(unix.SYS_INIT_MODULE, kernel), denied(unix.SYS_FINIT_MODULE, kernel),
		denied(unix.SYS_DELETE_MODULE, kernel), denied(unix.SYS_KEXEC_LOAD, kernel),
		denied(unix.SYS_KEXEC_FILE_LOAD, kernel), denied(unix.SYS_REBOOT, kernel), denied(unix.SYS_SYSLOG, kernel),
		denied(unix.SYS_BPF, kernel), denied(unix.SYS_PERF_EVENT_OPEN, kernel),
		denied(unix.SYS_LOOKUP_DCOOKIE, kernel), denied(unix.SYS_NFSSERVCTL, kernel),
		denied(unix.SYS_IOPL, kernel), denied(unix.SYS_IOPERM, kernel),

		denied(unix.SYS_USERFAULTFD, surface), denied(unix.SYS_IO_URING_SETUP, surface),
		denied(unix.SYS_IO_URING_ENTER, surface), denied(unix.SYS_IO_URING_REGISTER, surface),
		denied(unix.SYS_KEYCTL, surface), denied(unix.SYS_ADD_KEY, surface), denied(unix.SYS_REQUEST_KEY, surface),
		denied(unix.SYS_VMSPLICE, surface),

		denied(unix.SYS_PROCESS_VM_READV, others), denied(unix.SYS_PROCESS_VM_WRITEV, others),
		denied(unix.SYS_KCMP, others), denied(unix.SYS_PIDFD_GETFD, others), denied(unix.SYS_PROCESS_MADVISE, others),

		denied(unix.SYS_SETTIMEOFDAY, machine), denied(unix.SYS_CLOCK_SETTIME, machine),
		denied(unix.SYS_CLOCK_ADJTIME, machine), denied(unix.SYS_SETHOSTNAME, machine),
		denied(unix.SYS_SETDOMAINNAME, machine), denied(unix.SYS_VHANGUP, machine),
	},
}

// Why calls are denied.
const (
	mounts  = "file systems and namespaces"
	kernel  = "the kernel itself"
	surface = "large attack surfaces without a user among jobs"
	others  = "other processes' memory and descriptors"
	machine = "machine-wide state"
)

func limited(number uintptr, allow seccomp.When, why string) seccomp.Rule {
	return seccomp.Rule{Number: number, Allow: allow, Why: why}
}

func denied(number uintptr, why string) seccomp.Rule { return limited(number, seccomp.Never, why) }
