package jail

import (
	"golang.org/x/sys/unix"

	"thaw/internal/seccomp"
)

// Control is the number of the control socket: the one socket on which descriptors may travel.
const Control = 3

// Handler is the number of a shell's socket to the process that may come to answer its write faults: the other socket
// on which descriptors may travel. It is larger than the number of any file that is passed.
const Handler = 1000

// threadFlags is exactly what Go's runtime passes to clone for a thread (cloneFlags in runtime/os_linux.go, and
// CLONE_SETTLS added in runtime/sys_linux_amd64.s).
const threadFlags = unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_SYSVSEM |
	unix.CLONE_THREAD | unix.CLONE_SETTLS

// Policy returns the one list for all threads of a machine's process, which installs it as it was compiled before (program.go).
// A violation kills the process, so that the parent sees SIGSYS; the kernel
// logs it as seccomp's actions_logged says (by default it does). KVM_RUN's rule stands first.
//
// Not here on purpose: open, openat, socket, connect, bind, execve, clone3, kill, ptrace, process_vm_*, mount, bpf,
// io_uring, memfd_create, userfaultfd, mremap, mprotect, ftruncate, prlimit64, seccomp.
//
//go:generate go test -run ^TestProgram$ . -update
func Policy() *seccomp.Policy {
	return killing(append([]seccomp.Rule{
		rule(unix.SYS_IOCTL, anyRequest(), "internal/kvm, internal/pagemap, internal/uffd: those of Requests"),

		// Data.
		rule(unix.SYS_READ, always, "internal/eventfd; virtio/vsock: streams; runtime: poller's eventfd"),
		rule(unix.SYS_WRITE, always, "internal/eventfd; virtio/vsock: streams; runtime: poller's eventfd, crash text on stderr"),
		rule(unix.SYS_READV, always, "virtio/net: scatter a frame"),
		rule(unix.SYS_WRITEV, always, "virtio/net: gather a frame; virtio/vsock: a packet's buffers"),
		rule(unix.SYS_PREAD64, always, "vmm/boot: kernel and initrd"),
		rule(unix.SYS_PREADV2, always, "virtio/block"),
		rule(unix.SYS_PWRITEV2, always, "virtio/block; internal/guestmem: kernel and initrd into memory; vmm, snapshot/memimage: snapshots"),
		rule(unix.SYS_FDATASYNC, always, "virtio/block: flush"),
		rule(unix.SYS_LSEEK, always, "virtio/block: whether a top layer is empty"),
		rule(unix.SYS_FSTAT, always, "virtio/block, vmm: sizes of passed files"),
		rule(unix.SYS_FSTATFS, always, "virtio/block: whether a layer is on tmpfs"),
		// Not FALLOC_FL_ZERO_RANGE: with FALLOC_FL_KEEP_SIZE it allocates blocks past a file's end without looking at
		// the limit of the file's size, and could fill the host's disk.
		rule(unix.SYS_FALLOCATE, seccomp.OneOf(1, unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE),
			"virtio/block: discard and write zeroes, never takes space"),
		rule(unix.SYS_PPOLL, always, "virtio: wait for kicks, and for the tap"),
		rule(unix.SYS_CLOSE, always, "virtio/vsock: streams that end; vmm: the end of the machine"),
		rule(unix.SYS_EVENTFD2, always, "internal/eventfd: ioeventfd, irqfd"),

		// Sockets: only those that were passed or accepted.
		rule(unix.SYS_RECVMSG, seccomp.OneOf(0, Control, Handler), "internal/unixfd: messages with descriptors"),
		rule(unix.SYS_SENDMSG, seccomp.OneOf(0, Control, Handler), "internal/unixfd: messages; vmm/protect: a userfaultfd and the file for pages to the handler"),
		rule(unix.SYS_ACCEPT4, always, "net: listener of virtio/vsock"),
		rule(unix.SYS_SHUTDOWN, always, "net: half-closed streams of virtio/vsock"),
		rule(unix.SYS_GETSOCKNAME, always, "net: wraps accepted and passed sockets"),
		rule(unix.SYS_GETPEERNAME, always, "net: wraps accepted and passed sockets"),
		rule(unix.SYS_GETSOCKOPT, seccomp.OneOf(1, unix.SOL_SOCKET), "net: SO_TYPE of passed sockets"),
		rule(unix.SYS_FCNTL, seccomp.OneOf(1, unix.F_GETFL, unix.F_SETFL, unix.F_SETFD, unix.F_DUPFD_CLOEXEC),
			"os, net: wrap passed descriptors; virtio/block: how a layer is open; internal/kvm: FD_CLOEXEC"),

		// Memory.
		rule(unix.SYS_MMAP, seccomp.NoBits(2, unix.PROT_EXEC), "runtime: heap, stacks; internal/guestmem: guest memory; snapshot/memimage; internal/kvm: kvm_run; vmm: registers"),
		rule(unix.SYS_MUNMAP, always, "runtime; internal/guestmem; internal/kvm; vmm"),
		rule(unix.SYS_MADVISE, always, "runtime: heap; internal/guestmem, snapshot/memimage: pages given back"),
	}, goRuntime()...))
}

// HandlerPolicy returns the list of a handler of write faults (package protect): it has two sockets, another process's
// memory to read, and what comes to it by the one from that process.
func HandlerPolicy() *seccomp.Policy {
	return killing(append([]seccomp.Rule{
		rule(unix.SYS_IOCTL, seccomp.OneOf(1, 0xc018aa3f, 0xc020aa00, 0xc018aa06), "internal/uffd: UFFDIO_API, UFFDIO_REGISTER, UFFDIO_WRITEPROTECT"),
		rule(unix.SYS_PPOLL, always, "vmm/protect: wait for faults and messages"),
		rule(unix.SYS_READ, always, "internal/uffd: faults; runtime: poller's eventfd"),
		rule(unix.SYS_WRITE, always, "runtime: poller's eventfd, crash text on stderr"),
		rule(unix.SYS_PREADV2, always, "vmm/protect: pages of the machine"),
		rule(unix.SYS_PWRITEV2, always, "vmm/protect: pages into the file"),
		rule(unix.SYS_RECVMSG, always, "internal/unixfd: messages of the machine"),
		rule(unix.SYS_SENDMSG, always, "internal/unixfd: answers"),
		rule(unix.SYS_FCNTL, seccomp.OneOf(1, unix.F_GETFL, unix.F_SETFL, unix.F_SETFD, unix.F_DUPFD_CLOEXEC),
			"os: wrap passed descriptors; vmm/protect: keep a userfaultfd that does not block"),
		rule(unix.SYS_CLOSE, always, "vmm/protect: what is done with"),
		rule(unix.SYS_MMAP, seccomp.NoBits(2, unix.PROT_EXEC), "runtime: heap, stacks"),
		rule(unix.SYS_MUNMAP, always, "runtime"),
		rule(unix.SYS_MADVISE, always, "runtime: heap"),
	}, goRuntime()...))
}

func killing(rules []seccomp.Rule) *seccomp.Policy {
	return &seccomp.Policy{Unlisted: seccomp.Kill, Refused: seccomp.Kill, Rules: rules}
}

// goRuntime is what Go's runtime needs in every program: threads, signals, time.
func goRuntime() []seccomp.Rule {
	return []seccomp.Rule{
		rule(unix.SYS_FUTEX, always, "runtime: locks, sleeping threads"),
		rule(unix.SYS_CLONE, seccomp.OneOf(0, threadFlags), "runtime: new threads, nothing else"),
		rule(unix.SYS_EXIT, always, "runtime: end of a locked thread (vCPU)"),
		rule(unix.SYS_EXIT_GROUP, always, "runtime: os.Exit, panic"),
		rule(unix.SYS_SCHED_YIELD, always, "runtime: spinning threads"),
		rule(unix.SYS_SIGALTSTACK, always, "runtime: signal stack of a new thread"),
		rule(unix.SYS_RT_SIGACTION, always, "runtime: handlers, the default action before a fatal signal"),
		rule(unix.SYS_RT_SIGPROCMASK, always, "runtime: new threads"),
		rule(unix.SYS_RT_SIGRETURN, always, "runtime: return from a signal handler"),
		// In our pid namespace the process is number 1: the condition makes "only itself" explicit.
		rule(unix.SYS_TGKILL, seccomp.OneOf(0, 1), "runtime: preemption, a fatal signal; vmm: kick of a vCPU"),
		rule(unix.SYS_GETPID, always, "runtime, vmm: tgkill"),
		rule(unix.SYS_GETTID, always, "runtime: tgkill; vmm: kick of a vCPU"),
		rule(unix.SYS_RESTART_SYSCALL, always, "kernel: a sleep that a stop and continue has interrupted"),
		rule(unix.SYS_EPOLL_CTL, always, "runtime: poller"),
		rule(unix.SYS_EPOLL_PWAIT, always, "runtime: poller"),
		rule(unix.SYS_NANOSLEEP, always, "runtime: background threads"),
		rule(unix.SYS_CLOCK_GETTIME, always, "runtime: hosts whose vDSO clock is off"),
		rule(unix.SYS_GETRANDOM, always, "virtio/rng; crypto/rand: generation id; runtime: seeds"),
		rule(unix.SYS_PRCTL, seccomp.OneOf(0, unix.PR_SET_VMA), "runtime: names heap mappings (decoratemappings)"),
	}
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

// loadFilter installs the list. A machine's comes compiled: to translate it took every process as long as the kernel takes to
// check it.
func loadFilter(o Options) error {
	if o.Handler {
		return seccomp.Install(HandlerPolicy(), seccomp.AllThreads)
	}
	return seccomp.InstallProgram(machineProgram, seccomp.AllThreads)
}
