// SPDX-License-Identifier: GPL-2.0
/*
 * Returns to user mode with hostile registers: signal frames that were changed
 * to point into the kernel, to non-canonical addresses or to other segments, and
 * registers that a tracer set. Each must end in a signal for the process, and
 * never in kernel mode. Also single stepping, which takes the same way back.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include "guesttest.h"

#define RFLAGS_TF   0x000100
#define RFLAGS_IOPL 0x003000
#define RFLAGS_NT   0x004000
#define RFLAGS_AC   0x040000

static const struct hostile_frame {
	const char *name;
	int reg;
	/* With keep, the value replaces the bits outside it; else it is or'ed in. */
	uint64_t keep, value;
} frames[] = {
	{ "rip not canonical", REG_RIP, 0, 0x8000000000000000 },
	{ "rip in the kernel's text", REG_RIP, 0, 0xffffffff81000000 },
	{ "rip at the end of user space", REG_RIP, 0, 0x00007ffffffff000 },
	{ "rsp in the kernel's data", REG_RSP, 0, 0xffffffff82000000 },
	{ "rsp not canonical", REG_RSP, 0, 0x8000000000000000 },
	{ "cs of the kernel", REG_CSGSFS, ~0xffffull, 0x10 },
	{ "cs of 32-bit code", REG_CSGSFS, ~0xffffull, 0x23 },
	{ "cs of the CPU number", REG_CSGSFS, ~0xffffull, 0x7b },
	/* Not refused: those of the flags that are the kernel's are cleared. */
	{ "system flags", REG_EFL, ~0ull,
	  RFLAGS_TF | RFLAGS_IOPL | RFLAGS_NT | RFLAGS_AC },
};

#define FRAMES ((int)(sizeof(frames) / sizeof(frames[0])))

static const struct hostile_frame *frame;
static volatile int traps;

static void change_frame(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)sig;
	(void)info;
	regs[frame->reg] = (regs[frame->reg] & frame->keep) | frame->value;
}

static void count_trap(int sig)
{
	(void)sig;
	traps++;
}

/* Returns from a signal with the frame changed; the exit code says what came. */
static void return_hostile(void)
{
	struct sigaction action = { .sa_sigaction = change_frame, .sa_flags = SA_SIGINFO };

	signal(SIGTRAP, count_trap);
	sigaction(SIGUSR1, &action, NULL);
	alarm(5);
	kill(getpid(), SIGUSR1);
	_exit(traps > 0 ? 0 : 77);
}

static int hostile_frame(int i)
{
	pid_t pid;
	int status, ok;

	frame = &frames[i];
	fflush(stdout);
	pid = fork();
	if (!pid)
		return_hostile();
	waitpid(pid, &status, 0);
	if (frame->reg == REG_EFL)
		ok = status == 0; /* the trap flag works, and nothing else happens */
	else
		ok = WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV ||
					     WTERMSIG(status) == SIGBUS ||
					     WTERMSIG(status) == SIGILL);
	printf("%s: status %x%s\n", frame->name, status, ok ? "" : " WRONG");
	return ok;
}

/* The trap flag set by the process itself: a trap after each instruction. */
static int trap_flag(void)
{
	traps = 0;
	signal(SIGTRAP, count_trap);
	asm volatile("pushf\n\t"
		     "orq $0x100, (%%rsp)\n\t"
		     "popf\n\t"
		     "nop\n\t"
		     "nop\n\t"
		     "nop\n\t"
		     "pushf\n\t"
		     "andq $~0x100, (%%rsp)\n\t"
		     "popf" ::: "memory", "cc");
	printf("trap flag: %d traps\n", traps);
	return traps >= 4;
}

static pid_t traced_child(void)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		for (volatile int i = 0; i < 10; i++)
			;
		_exit(5);
	}
	waitpid(pid, &status, 0);
	return pid;
}

static int single_step(void)
{
	pid_t pid = traced_child();
	int steps = 0, status = 0;

	while (steps < 2000 && !ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL)) {
		waitpid(pid, &status, 0);
		if (!WIFSTOPPED(status))
			break;
		steps++;
	}
	printf("single steps: %d, then status %x\n", steps, status);
	return steps >= 20 && WIFEXITED(status) && WEXITSTATUS(status) == 5;
}

/* A tracer that sends the process into the kernel's direct map. */
static int traced_into_kernel(void)
{
	struct user_regs_struct regs;
	pid_t pid = traced_child();
	int status;

	ptrace(PTRACE_GETREGS, pid, NULL, &regs);
	regs.rip = 0xffff888000000000;
	regs.orig_rax = -1;
	ptrace(PTRACE_SETREGS, pid, NULL, &regs);
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	waitpid(pid, &status, 0);
	printf("traced into the kernel: status %x\n", status);
	int ok = WIFSTOPPED(status) && WSTOPSIG(status) == SIGSEGV;

	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	return ok;
}

int main(void)
{
	int failures = 0;

	for (int i = 0; i < FRAMES; i++)
		failures += !hostile_frame(i);
	failures += !trap_flag();
	failures += !single_step();
	failures += !traced_into_kernel();
	return verdict("hostile_return", failures);
}
