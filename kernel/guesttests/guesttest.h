/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the guest tests share. Each is a static program that runs as root in the
 * guest, with /proc mounted, prints a line for what it found, ends with
 * "<name>: PASS" or "<name>: FAIL", and exits with 0 only when it passed.
 */
#ifndef GUESTTEST_H
#define GUESTTEST_H

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Ends a test: prints the verdict and gives main's return value. */
static inline int verdict(const char *name, int failures)
{
	printf("%s: %s\n", name, failures ? "FAIL" : "PASS");
	return failures != 0;
}

/*
 * Catching faults: if (!attempt()) { …access… } else { it faulted }. The signal
 * that ended the attempt is in fault_signal.
 */
static sigjmp_buf fault_jump;
static volatile int fault_signal;

static inline void fault_handler(int sig)
{
	fault_signal = sig;
	siglongjmp(fault_jump, 1);
}

#define attempt() (fault_signal = 0, sigsetjmp(fault_jump, 1))

/*
 * Sends the faults to fault_handler, on a stack of their own: the tests break
 * the stack pointer too.
 */
static inline void catch_faults(void)
{
	static char stack[64 << 10];
	static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE };
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction action = {
		.sa_handler = fault_handler,
		.sa_flags = SA_ONSTACK | SA_NODEFER,
	};

	sigaltstack(&alternate, NULL);
	for (unsigned int i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		sigaction(signals[i], &action, NULL);
}

#endif
