// SPDX-License-Identifier: GPL-2.0
/*
 * The GS base belongs to a process: it survives context switches, is inherited
 * by fork, is zero after exec, and never leaks into a process that did not set
 * it. On pvm hosts the kernel keeps its own GS base in the same register.
 */
#define _GNU_SOURCE
#include <asm/prctl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guesttest.h"

enum { PROCESSES = 4, ROUNDS = 3000 };

static unsigned long blocks[PROCESSES][8];

static unsigned long get_gs(void)
{
	unsigned long base = ~0ul;

	syscall(SYS_arch_prctl, ARCH_GET_GS, &base);
	return base;
}

static unsigned long read_through_gs(void)
{
	unsigned long value;

	asm volatile("mov %%gs:0, %0" : "=r"(value));
	return value;
}

/* The run of the program that the last child executes. */
static int after_exec(void)
{
	unsigned long base = get_gs();

	if (base)
		printf("GS base is %lx after exec\n", base);
	return base != 0;
}

/* Process 0 has no base; the others each have a block of their own. */
static int child(int k)
{
	unsigned long mark = k + 100;
	int status;

	blocks[k][0] = mark;
	if (k)
		syscall(SYS_arch_prctl, ARCH_SET_GS, (unsigned long)blocks[k]);
	for (int i = 0; i < ROUNDS; i++) {
		sched_yield();
		if (!k && get_gs())
			return 3;
		if (k && read_through_gs() != mark)
			return 1;
		if (k && get_gs() != (unsigned long)blocks[k])
			return 2;
	}
	if (k != PROCESSES - 1)
		return 0;
	if (!fork())
		_exit(read_through_gs() != mark);
	wait(&status);
	if (status)
		return 4;
	execl("/proc/self/exe", "gs_base", "after-exec", NULL);
	return 5;
}

int main(int argc, char **argv)
{
	pid_t pids[PROCESSES];
	int failures = 0, status;

	(void)argv;
	if (argc > 1)
		return after_exec();
	if (get_gs()) {
		printf("GS base is set at the start\n");
		failures++;
	}
	fflush(stdout);
	for (int k = 0; k < PROCESSES; k++) {
		pids[k] = fork();
		if (!pids[k])
			_exit(child(k));
	}
	for (int k = 0; k < PROCESSES; k++) {
		waitpid(pids[k], &status, 0);
		if (status) {
			printf("process %d ended with status %x\n", k, status);
			failures++;
		}
	}
	return verdict("gs_base", failures);
}
