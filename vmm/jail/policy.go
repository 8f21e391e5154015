package jail

import "golang.org/x/sys/unix"

// Rule allows one system call. A call of any other kind, or with other arguments, kills the process.
type Rule struct {
	Name string
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

// threadFlags is exactly what Go's runtime passes to clone for a thread (runtime/os_linux.go, cloneFlags).
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM | unix.CLONE_THREAD

// Policy is the one list for all threads. Calls that are hot and have conditions stand first; for those without
// conditions the kernel keeps a bitmap and does not run the filter at all.
//
// Not here on purpose: open, openat, socket, connect, bind, execve, clone3, kill, ptrace, process_vm_*, mount, bpf,
// io_uring, memfd_create, userfaultfd, mremap, mprotect, ftruncate, prlimit64, seccomp.
var Policy = []Rule{
	{"ioctl", anyRequest(), "vmm: vCPUs and the machine; virtio/net: offload mask. See Requests."},

	// Data.
	{"read", nil, "devices: eventfd, tap, vsock streams; runtime: poller's eventfd"},
	{"write", nil, "devices: eventfd, tap, vsock streams; runtime: crash text on stderr"},
	{"readv", nil, "virtio/net: scatter a frame; virtio/vsock"},
	{"writev", nil, "virtio/net: gather a frame; virtio/vsock; net.Buffers"},
	{"pread64", nil, "virtio/block; kernel image and initrd; KVM statistics"},
	{"pwrite64", nil, "virtio/block"},
	{"preadv", nil, "virtio/block"},
	{"pwritev", nil, "virtio/block"},
	{"preadv2", nil, "virtio/block: RWF_NOWAIT"},
	{"pwritev2", nil, "virtio/block: RWF_DSYNC"},
	{"fdatasync", nil, "virtio/block: flush"},
	{"fsync", nil, "virtio/block: flush (os.File.Sync)"},
	{"lseek", nil, "virtio/block: SEEK_DATA and SEEK_HOLE of layers; size of files"},
	{"fstat", nil, "os.File.Stat of passed files"},
	{"fallocate", oneOf(1,
		unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE,
		unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_ZERO_RANGE,
	), "virtio/block: discard and write zeroes; never grows a file"},
	{"close", nil, "streams that end"},
	{"eventfd2", nil, "vmm: ioeventfd, irqfd"},

	// Sockets: only those that were passed or accepted.
	{"recvmsg", oneOf(0, Control), "control: messages with descriptors"},
	{"sendmsg", oneOf(0, Control), "control: messages"},
	{"recvfrom", nil, "virtio/vsock: peek at a stream"},
	{"sendto", oneOf(4, 0), "virtio/vsock: send without an address"},
	{"accept4", nil, "virtio/vsock: listener for host connections"},
	{"shutdown", nil, "virtio/vsock: half-closed streams"},
	{"getsockname", nil, "package net: wraps accepted and passed sockets"},
	{"getpeername", nil, "package net: wraps accepted and passed sockets"},
	{"getsockopt", oneOf(1, unix.SOL_SOCKET), "package net: SO_TYPE, SO_ERROR"},
	{"fcntl", oneOf(1, unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC, unix.F_GET_SEALS),
		"packages os and net: wrap passed descriptors; vmm: seals of the guest's memory"},

	// Memory.
	{"mmap", noBits(2, unix.PROT_EXEC), "runtime: heap, stacks; vmm: guest memory, kvm_run"},
	{"munmap", nil, "runtime; vmm"},
	{"madvise", nil, "runtime: heap; virtio/balloon: MADV_DONTNEED, MADV_REMOVE; vmm: MADV_POPULATE_WRITE"},
	{"mincore", nil, "runtime: probes a mapping; virtio/balloon"},

	// Threads, signals, time: Go's runtime.
	{"futex", nil, "runtime: locks, sleeping threads"},
	{"clone", oneOf(0, threadFlags), "runtime: new threads, nothing else"},
	{"arch_prctl", oneOf(0, archSetFS), "runtime: thread-local storage of a new thread"},
	{"exit", nil, "runtime: end of a locked thread (vCPU)"},
	{"exit_group", nil, "runtime: os.Exit, panic"},
	{"sched_yield", nil, "runtime: spinning threads"},
	{"sched_getaffinity", nil, "runtime: number of CPUs"},
	{"sigaltstack", nil, "runtime: signal stack of a new thread"},
	{"rt_sigaction", nil, "runtime, os/signal"},
	{"rt_sigprocmask", nil, "runtime: new threads"},
	{"rt_sigreturn", nil, "runtime: return from a signal handler"},
	// In our pid namespace the process is number 1: the condition makes "only itself" explicit.
	{"tgkill", oneOf(0, 1), "runtime: preemption; vmm: kick of a vCPU; raise of a fatal signal"},
	{"getpid", nil, "runtime: tgkill"},
	{"gettid", nil, "runtime: tgkill; vmm: kick of a vCPU"},
	{"restart_syscall", nil, "kernel: a sleep that a stop and continue has interrupted"},
	{"epoll_ctl", nil, "runtime: poller"},
	{"epoll_pwait", nil, "runtime: poller"},
	{"nanosleep", nil, "runtime: background threads"},
	{"clock_gettime", nil, "runtime: hosts whose vDSO clock is off"},
	{"gettimeofday", nil, "runtime: hosts whose vDSO clock is off"},
	{"getrandom", nil, "virtio/rng; crypto/rand; map seeds"},
	{"prctl", oneOf(0, unix.PR_SET_VMA), "runtime: names heap mappings (decoratemappings)"},
	{"uname", nil, "package os: kernel version, once"},
}

const archSetFS = 0x1002 // ARCH_SET_FS, asm/prctl.h

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
