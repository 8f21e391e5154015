package jail

import (
	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
)

// Control is the number of the control socket: the one socket on which descriptors may travel.
const Control = 3

// threadFlags is exactly what Go's runtime passes to clone for a thread (cloneFlags in runtime/os_linux.go, and
// CLONE_SETTLS added in runtime/sys_linux_amd64.s).
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM |
	unix.CLONE_THREAD | unix.CLONE_SETTLS

// Policy is the one list for all threads. A violation kills the process, so that the parent sees SIGSYS; the kernel
// logs it as seccomp's actions_logged says (by default it does). KVM_RUN's rule stands first.
//
// Not here on purpose: open, openat, socket, connect, bind, execve, clone3, kill, ptrace, process_vm_*, mount, bpf,
// io_uring, memfd_create, userfaultfd, mremap, mprotect, ftruncate, prlimit64, seccomp.
var Policy = seccomp.Policy{
	Unlisted: seccomp.Kill, Refused: seccomp.Kill,
	Rules: []seccomp.Rule{
		rule(unix.SYS_IOCTL, anyRequest(), "vmm: vCPUs and the machine; see Requests"),

		// Data.
		rule(unix.SYS_READ, always, "devices: eventfd, tap, vsock streams; runtime: poller's eventfd"),
		rule(unix.SYS_WRITE, always, "devices: eventfd, tap, vsock streams; runtime: crash text on stderr"),
		rule(unix.SYS_READV, always, "virtio/net: scatter a frame; virtio/vsock"),
		rule(unix.SYS_WRITEV, always, "virtio/net: gather a frame; virtio/vsock; net.Buffers"),
		rule(unix.SYS_PREAD64, always, "virtio/block; kernel image and initrd; KVM statistics"),
		rule(unix.SYS_PWRITE64, always, "virtio/block"),
		rule(unix.SYS_PREADV, always, "virtio/block"),
		rule(unix.SYS_PWRITEV, always, "virtio/block"),
		rule(unix.SYS_PREADV2, always, "virtio/block: RWF_NOWAIT"),
		rule(unix.SYS_PWRITEV2, always, "virtio/block: RWF_DSYNC"),
		rule(unix.SYS_FDATASYNC, always, "virtio/block: flush"),
		rule(unix.SYS_FSYNC, always, "virtio/block: flush (os.File.Sync)"),
		rule(unix.SYS_LSEEK, always, "virtio/block: SEEK_DATA and SEEK_HOLE of layers; size of files"),
		rule(unix.SYS_FSTAT, always, "os.File.Stat of passed files"),
		rule(unix.SYS_FSTATFS, always, "virtio/block: block size of a layer's file system"),
		// Not FALLOC_FL_ZERO_RANGE: with FALLOC_FL_KEEP_SIZE it allocates blocks past a file's end without looking at
		// the limit of the file's size, and could fill the host's disk.
		rule(unix.SYS_FALLOCATE, seccomp.OneOf(1, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE),
			"virtio/block: discard and write zeroes; never takes space"),
		rule(unix.SYS_PPOLL, always, "virtio/net: wait for the tap and the doorbell"),
		rule(unix.SYS_CLOSE, always, "streams that end"),
		rule(unix.SYS_EVENTFD2, always, "vmm: ioeventfd, irqfd"),

		// Sockets: only those that were passed or accepted.
		rule(unix.SYS_RECVMSG, seccomp.OneOf(0, Control), "control: messages with descriptors"),
		rule(unix.SYS_SENDMSG, seccomp.OneOf(0, Control), "control: messages"),
		rule(unix.SYS_RECVFROM, always, "virtio/vsock: peek at a stream"),
		rule(unix.SYS_SENDTO, seccomp.OneOf(4, 0), "virtio/vsock: send without an address"),
		rule(unix.SYS_ACCEPT4, always, "virtio/vsock: listener for host connections"),
		rule(unix.SYS_SHUTDOWN, always, "virtio/vsock: half-closed streams"),
		rule(unix.SYS_GETSOCKNAME, always, "package net: wraps accepted and passed sockets"),
		rule(unix.SYS_GETPEERNAME, always, "package net: wraps accepted and passed sockets"),
		rule(unix.SYS_GETSOCKOPT, seccomp.OneOf(1, unix.SOL_SOCKET), "package net: SO_TYPE, SO_ERROR"),
		rule(unix.SYS_FCNTL, seccomp.OneOf(1, unix.F_GETFL, unix.F_SETFL, unix.F_GETFD, unix.F_SETFD, unix.F_DUPFD_CLOEXEC, unix.F_GET_SEALS),
			"packages os and net: wrap passed descriptors; vmm: seals of the guest's memory"),

		// Memory.
		rule(unix.SYS_MMAP, seccomp.NoBits(2, unix.PROT_EXEC), "runtime: heap, stacks; vmm: guest memory, kvm_run"),
		rule(unix.SYS_MUNMAP, always, "runtime; vmm"),
		rule(unix.SYS_MADVISE, always, "runtime: heap; virtio/balloon: MADV_DONTNEED, MADV_REMOVE; vmm: MADV_POPULATE_WRITE"),
		rule(unix.SYS_MINCORE, always, "runtime: probes a mapping; virtio/balloon"),

		// Threads, signals, time: Go's runtime.
		rule(unix.SYS_FUTEX, always, "runtime: locks, sleeping threads"),
		rule(unix.SYS_CLONE, seccomp.OneOf(0, threadFlags), "runtime: new threads, nothing else"),
		rule(unix.SYS_EXIT, always, "runtime: end of a locked thread (vCPU)"),
		rule(unix.SYS_EXIT_GROUP, always, "runtime: os.Exit, panic"),
		rule(unix.SYS_SCHED_YIELD, always, "runtime: spinning threads"),
		rule(unix.SYS_SCHED_GETAFFINITY, always, "runtime: number of CPUs"),
		rule(unix.SYS_SIGALTSTACK, always, "runtime: signal stack of a new thread"),
		rule(unix.SYS_RT_SIGACTION, always, "runtime, os/signal"),
		rule(unix.SYS_RT_SIGPROCMASK, always, "runtime: new threads"),
		rule(unix.SYS_RT_SIGRETURN, always, "runtime: return from a signal handler"),
		// In our pid namespace the process is number 1: the condition makes "only itself" explicit.
		rule(unix.SYS_TGKILL, seccomp.OneOf(0, 1), "runtime: preemption; vmm: kick of a vCPU; raise of a fatal signal"),
		rule(unix.SYS_GETPID, always, "runtime: tgkill"),
		rule(unix.SYS_GETTID, always, "runtime: tgkill; vmm: kick of a vCPU"),
		rule(unix.SYS_RESTART_SYSCALL, always, "kernel: a sleep that a stop and continue has interrupted"),
		rule(unix.SYS_EPOLL_CTL, always, "runtime: poller"),
		rule(unix.SYS_EPOLL_PWAIT, always, "runtime: poller"),
		rule(unix.SYS_NANOSLEEP, always, "runtime: background threads"),
		rule(unix.SYS_CLOCK_GETTIME, always, "runtime: hosts whose vDSO clock is off"),
		rule(unix.SYS_GETTIMEOFDAY, always, "runtime: hosts whose vDSO clock is off"),
		rule(unix.SYS_GETRANDOM, always, "virtio/rng; crypto/rand; map seeds"),
		rule(unix.SYS_PRCTL, seccomp.OneOf(0, unix.PR_SET_VMA), "runtime: names heap mappings (decoratemappings)"),
		rule(unix.SYS_UNAME, always, "package os: kernel version, once"),
	},
}

func rule(number uintptr, allow seccomp.When, why string) seccomp.Rule {
	return seccomp.Rule{Number: number, Allow: allow, Why: why}
}

var always = seccomp.Always

func anyRequest() seccomp.When {
	var any seccomp.When
	for _, r := range Requests {
		any = append(any, []seccomp.Cond{seccomp.Is(1, uint64(r.Number))})
	}
	return any
}

func loadFilter(Options) error { return seccomp.Install(&Policy, seccomp.AllThreads) }
