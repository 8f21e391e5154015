package jail

import "golang.org/x/sys/unix"

// Rule allows one system call. A call of any other kind, or with other arguments, kills the process.
type Rule struct {
	Name   string
	Number uintptr
	// Any holds alternatives, each a list of conditions that must all be true. None: any arguments.
	Any [][]Cond
	// Who says which code needs it.
	Who string
}

// Cond is a condition on one argument. The kernel gives the filter all 64 bits of it.
type Cond struct {
	Arg int
	Op  Op
	Val uint64
}

// Op is how a [Cond] compares.
type Op int

// Comparisons.
const (
	Equal  Op = iota
	NoBits    // none of Val's bits is set
)

// Control is the number of the control socket: the one socket on which descriptors may travel.
const Control = 3

// threadFlags is exactly what Go's runtime passes to clone for a thread (cloneFlags in runtime/os_linux.go, and
// CLONE_SETTLS added in runtime/sys_linux_amd64.s).
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM |
	unix.CLONE_THREAD | unix.CLONE_SETTLS

// Policy is the one list for all threads. Calls that are hot and have conditions stand first; for those without
// conditions the kernel keeps a bitmap and does not run the filter at all.
//
// Not here on purpose: open, openat, socket, connect, bind, execve, clone3, kill, ptrace, process_vm_*, mount, bpf,
// io_uring, memfd_create, userfaultfd, mremap, mprotect, ftruncate, prlimit64, seccomp.
var Policy = []Rule{
	{"ioctl", unix.SYS_IOCTL, anyRequest(), "vmm: vCPUs and the machine; see Requests"},

	// Data.
	{"read", unix.SYS_READ, nil, "devices: eventfd, tap, vsock streams; runtime: poller's eventfd"},
	{"write", unix.SYS_WRITE, nil, "devices: eventfd, tap, vsock streams; runtime: crash text on stderr"},
	{"readv", unix.SYS_READV, nil, "virtio/net: scatter a frame; virtio/vsock"},
	{"writev", unix.SYS_WRITEV, nil, "virtio/net: gather a frame; virtio/vsock; net.Buffers"},
	{"pread64", unix.SYS_PREAD64, nil, "virtio/block; kernel image and initrd; KVM statistics"},
	{"pwrite64", unix.SYS_PWRITE64, nil, "virtio/block"},
	{"preadv", unix.SYS_PREADV, nil, "virtio/block"},
	{"pwritev", unix.SYS_PWRITEV, nil, "virtio/block"},
	{"preadv2", unix.SYS_PREADV2, nil, "virtio/block: RWF_NOWAIT"},
	{"pwritev2", unix.SYS_PWRITEV2, nil, "virtio/block: RWF_DSYNC"},
	{"fdatasync", unix.SYS_FDATASYNC, nil, "virtio/block: flush"},
	{"fsync", unix.SYS_FSYNC, nil, "virtio/block: flush (os.File.Sync)"},
	{"lseek", unix.SYS_LSEEK, nil, "virtio/block: SEEK_DATA and SEEK_HOLE of layers; size of files"},
	{"fstat", unix.SYS_FSTAT, nil, "os.File.Stat of passed files"},
	{"fstatfs", unix.SYS_FSTATFS, nil, "virtio/block: block size of a layer's file system"},
	// Not FALLOC_FL_ZERO_RANGE: with FALLOC_FL_KEEP_SIZE it allocates blocks past a file's end without looking at
	// the limit of the file's size, and could fill the host's disk.
	{"fallocate", unix.SYS_FALLOCATE, oneOf(1, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE),
		"virtio/block: discard and write zeroes; never takes space"},
	{"ppoll", unix.SYS_PPOLL, nil, "virtio/net: wait for the tap and the doorbell"},
	{"close", unix.SYS_CLOSE, nil, "streams that end"},
	{"eventfd2", unix.SYS_EVENTFD2, nil, "vmm: ioeventfd, irqfd"},

	// Sockets: only those that were passed or accepted.
	{"recvmsg", unix.SYS_RECVMSG, oneOf(0, Control), "control: messages with descriptors"},
	{"sendmsg", unix.SYS_SENDMSG, oneOf(0, Control), "control: messages"},
	{"recvfrom", unix.SYS_RECVFROM, nil, "virtio/vsock: peek at a stream"},
	{"sendto", unix.SYS_SENDTO, oneOf(4, 0), "virtio/vsock: send without an address"},
	{"accept4", unix.SYS_ACCEPT4, nil, "virtio/vsock: listener for host connections"},
	{"shutdown", unix.SYS_SHUTDOWN, nil, "virtio/vsock: half-closed streams"},
	{"getsockname", unix.SYS_GETSOCKNAME, nil, "package net: wraps accepted and passed sockets"},
	{"getpeername", unix.SYS_GETPEERNAME, nil, "package net: wraps accepted and passed sockets"},
	{"getsockopt", unix.SYS_GETSOCKOPT, oneOf(1, unix.SOL_SOCKET), "package net: SO_TYPE, SO_ERROR"},
	{"fcntl", unix.SYS_FCNTL, oneOf(1, unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC, unix.F_GET_SEALS),
		"packages os and net: wrap passed descriptors; vmm: seals of the guest's memory"},

	// Memory.
	{"mmap", unix.SYS_MMAP, noBits(2, unix.PROT_EXEC), "runtime: heap, stacks; vmm: guest memory, kvm_run"},
	{"munmap", unix.SYS_MUNMAP, nil, "runtime; vmm"},
	{"madvise", unix.SYS_MADVISE, nil, "runtime: heap; virtio/balloon: MADV_DONTNEED, MADV_REMOVE; vmm: MADV_POPULATE_WRITE"},
	{"mincore", unix.SYS_MINCORE, nil, "runtime: probes a mapping; virtio/balloon"},

	// Threads, signals, time: Go's runtime.
	{"futex", unix.SYS_FUTEX, nil, "runtime: locks, sleeping threads"},
	{"clone", unix.SYS_CLONE, oneOf(0, threadFlags), "runtime: new threads, nothing else"},
	{"exit", unix.SYS_EXIT, nil, "runtime: end of a locked thread (vCPU)"},
	{"exit_group", unix.SYS_EXIT_GROUP, nil, "runtime: os.Exit, panic"},
	{"sched_yield", unix.SYS_SCHED_YIELD, nil, "runtime: spinning threads"},
	{"sched_getaffinity", unix.SYS_SCHED_GETAFFINITY, nil, "runtime: number of CPUs"},
	{"sigaltstack", unix.SYS_SIGALTSTACK, nil, "runtime: signal stack of a new thread"},
	{"rt_sigaction", unix.SYS_RT_SIGACTION, nil, "runtime, os/signal"},
	{"rt_sigprocmask", unix.SYS_RT_SIGPROCMASK, nil, "runtime: new threads"},
	{"rt_sigreturn", unix.SYS_RT_SIGRETURN, nil, "runtime: return from a signal handler"},
	// In our pid namespace the process is number 1: the condition makes "only itself" explicit.
	{"tgkill", unix.SYS_TGKILL, oneOf(0, 1), "runtime: preemption; vmm: kick of a vCPU; raise of a fatal signal"},
	{"getpid", unix.SYS_GETPID, nil, "runtime: tgkill"},
	{"gettid", unix.SYS_GETTID, nil, "runtime: tgkill; vmm: kick of a vCPU"},
	{"restart_syscall", unix.SYS_RESTART_SYSCALL, nil, "kernel: a sleep that a stop and continue has interrupted"},
	{"epoll_ctl", unix.SYS_EPOLL_CTL, nil, "runtime: poller"},
	{"epoll_pwait", unix.SYS_EPOLL_PWAIT, nil, "runtime: poller"},
	{"nanosleep", unix.SYS_NANOSLEEP, nil, "runtime: background threads"},
	{"clock_gettime", unix.SYS_CLOCK_GETTIME, nil, "runtime: hosts whose vDSO clock is off"},
	{"gettimeofday", unix.SYS_GETTIMEOFDAY, nil, "runtime: hosts whose vDSO clock is off"},
	{"getrandom", unix.SYS_GETRANDOM, nil, "virtio/rng; crypto/rand; map seeds"},
	{"prctl", unix.SYS_PRCTL, oneOf(0, unix.PR_SET_VMA), "runtime: names heap mappings (decoratemappings)"},
	{"uname", unix.SYS_UNAME, nil, "package os: kernel version, once"},
}

// oneOf allows a call whose argument is one of values.
func oneOf(arg int, values ...uint64) [][]Cond {
	var any [][]Cond
	for _, v := range values {
		any = append(any, []Cond{{arg, Equal, v}})
	}
	return any
}

func noBits(arg int, mask uint64) [][]Cond {
	return [][]Cond{{{arg, NoBits, mask}}}
}

func anyRequest() [][]Cond {
	var any [][]Cond
	for _, r := range Requests {
		any = append(any, oneOf(1, uint64(r.Number))...)
	}
	return any
}
