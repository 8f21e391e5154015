/*
 * A process that shares an interpreter's memory and does nothing; see
 * docs/warm.md.
 *
 * A process is seen to end only after the kernel has taken its memory apart,
 * page by page, which in a machine that is destroyed next is work for nothing.
 * While another process has the same memory there is nothing to take apart.
 *
 * It is no thread: it has another process group, no descriptors, and all
 * signals blocked. It shares the caller's thread-local storage, so it must not
 * call the C library. The agent freezes it before any job.
 *
 * keeper.so is made from this by `go generate`, and the addon of Node has it too.
 */
#define _GNU_SOURCE
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static char stack[4096] __attribute__((aligned(16)));

static long call(long number, long a, long b, long c) {
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

__attribute__((noreturn)) static int stand(void *standing) {
	call(SYS_close_range, 0, ~0U, 0);
	call(SYS_setpgid, 0, 0, 0);
	call(SYS_prctl, PR_SET_NAME, (long)"keeper", 0);
	__atomic_store_n((int *)standing, 1, __ATOMIC_RELEASE);
	for (;;)
		call(SYS_pause, 0, 0, 0);
}

/* What objects had been loaded when the process began to wait. */
static unsigned long long loaded;

static int count_loads(struct dl_phdr_info *info, size_t size, void *count) {
	(void)size;
	*(unsigned long long *)count = info->dlpi_adds;
	return 1;
}

static unsigned long long loads(void) {
	unsigned long long count = 0;
	dl_iterate_phdr(count_loads, &count);
	return count;
}

/*
 * The last exit handler of a program's own: behind it come those of libraries
 * that were warm before. They free what goes with the process, and touch much
 * memory. What a program can see is done: the C library's streams are flushed.
 * An object that the program loaded may have a destructor, which runs at the
 * very end, so then all goes its usual way.
 */
static void leave(int status, void *unused) {
	(void)unused;
	if (loads() != loaded)
		return;
	fflush(0);
	_exit(status);
}

/* thaw_keep starts it and returns its process id, or -1. It is the agent's child. */
__attribute__((visibility("default"))) int thaw_keep(void) {
	static int standing;
	sigset_t all, old;
	pid_t pid;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pid = clone(stand, stack + sizeof stack, CLONE_VM | CLONE_PARENT, &standing);
	pthread_sigmask(SIG_SETMASK, &old, 0);
	loaded = loads();
	on_exit(leave, 0);
	while (pid > 0 && !__atomic_load_n(&standing, __ATOMIC_ACQUIRE))
		sched_yield();
	return pid;
}
