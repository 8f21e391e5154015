// SPDX-License-Identifier: GPL-2.0
/*
 * Register state across context switches, signals and system calls: x87, MXCSR,
 * YMM and, where CPUID has them, ZMM and mask registers. Several processes each
 * hold a pattern of their own while they yield to each other; any foreign bit is
 * a failure. Also, what CPUID and XGETBV promise to user mode must be what the
 * kernel saves (/proc/cpuinfo), else state would be lost silently.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guesttest.h"

enum { PROCESSES = 8, ROUNDS = 4000 };

/* bits of XCR0 */
#define XCR0_AVX    0x06ull
#define XCR0_AVX512 0xe0ull

struct features {
	int avx, avx512;
};

/* Between loading registers and looking at them again: mov $24,%eax; syscall. */
#define SCHED_YIELD "mov $24, %%eax\n\tsyscall\n\t"
_Static_assert(__NR_sched_yield == 24, "SCHED_YIELD has the number in it");

static uint64_t read_xcr0(void)
{
	uint32_t low, high;

	asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return (uint64_t)high << 32 | low;
}

/* What a program finds when it asks the CPU, as libraries do. */
static struct features user_features(void)
{
	struct features f = { 0 };
	uint32_t a, b, c, d;

	__cpuid(1, a, b, c, d);
	if (!(c & bit_OSXSAVE) || !(c & bit_AVX))
		return f;
	uint64_t xcr0 = read_xcr0();

	f.avx = (xcr0 & XCR0_AVX) == XCR0_AVX;
	__cpuid_count(7, 0, a, b, c, d);
	f.avx512 = f.avx && (b & bit_AVX512F) &&
		   (xcr0 & XCR0_AVX512) == XCR0_AVX512;
	return f;
}

/* What the kernel says it knows of, and so saves. */
static struct features kernel_features(void)
{
	struct features f = { 0 };
	char line[8192];
	FILE *cpuinfo = fopen("/proc/cpuinfo", "r");

	while (cpuinfo && fgets(line, sizeof(line), cpuinfo)) {
		if (strncmp(line, "flags", 5))
			continue;
		f.avx |= strstr(line, " avx ") != NULL;
		f.avx512 |= strstr(line, " avx512f ") != NULL;
	}
	if (cpuinfo)
		fclose(cpuinfo);
	return f;
}

/* A signal handler that uses the same registers as the code it interrupts. */
static void clobber_registers(int sig)
{
	(void)sig;
	asm volatile("vxorps %%ymm0, %%ymm0, %%ymm0\n\t"
		     "vxorps %%ymm15, %%ymm15, %%ymm15\n\t"
		     "fldz\n\t"
		     "fstp %%st(0)" ::: "memory");
}

/* Each hold_… returns whether the registers came back as they were. */
__attribute__((target("avx"))) static int hold_ymm(uint32_t seed)
{
	uint32_t in[8], out0[8], out15[8];

	for (int i = 0; i < 8; i++)
		in[i] = seed * 2654435761u + i;
	asm volatile("vmovups %2, %%ymm0\n\t"
		     "vmovups %2, %%ymm15\n\t"
		     SCHED_YIELD
		     "vmovups %%ymm0, %0\n\t"
		     "vmovups %%ymm15, %1"
		     : "=m"(out0), "=m"(out15)
		     : "m"(in)
		     : "rax", "rcx", "r11", "memory", "xmm0", "xmm15");
	return !memcmp(in, out0, sizeof(in)) && !memcmp(in, out15, sizeof(in));
}

__attribute__((target("avx512f"))) static int hold_zmm(uint32_t seed)
{
	uint32_t in[16], out0[16], out31[16], mask = seed & 0xffff, mask_out;

	for (int i = 0; i < 16; i++)
		in[i] = seed * 40503u + i;
	asm volatile("vmovups %3, %%zmm0\n\t"
		     "vmovups %3, %%zmm31\n\t"
		     "kmovw %4, %%k3\n\t"
		     SCHED_YIELD
		     "vmovups %%zmm0, %0\n\t"
		     "vmovups %%zmm31, %1\n\t"
		     "kmovw %%k3, %2"
		     : "=m"(out0), "=m"(out31), "=r"(mask_out)
		     : "m"(in), "r"(mask)
		     : "rax", "rcx", "r11", "memory", "xmm0", "xmm31");
	return !memcmp(in, out0, sizeof(in)) && !memcmp(in, out31, sizeof(in)) &&
	       mask == mask_out;
}

static int hold_x87_mxcsr(uint32_t seed)
{
	const uint32_t status = 0x3f; /* sticky exception bits */
	/* all exceptions masked, rounding mode by seed */
	uint32_t mxcsr = 0x1f80 | (seed & 3) << 13, mxcsr_out;
	double in = seed + 0.5, out;

	asm volatile("ldmxcsr %3\n\t"
		     "fldl %2\n\t"
		     SCHED_YIELD
		     "fstpl %0\n\t"
		     "stmxcsr %1"
		     : "=m"(out), "=m"(mxcsr_out)
		     : "m"(in), "m"(mxcsr)
		     : "rax", "rcx", "r11", "memory");
	return in == out && (mxcsr_out & ~status) == (mxcsr & ~status);
}

/* Returns 0, or which registers were lost. */
static int hold_registers(uint32_t id, int avx512)
{
	struct itimerval every = { { 0, 3000 }, { 0, 3000 } };

	signal(SIGALRM, clobber_registers);
	setitimer(ITIMER_REAL, &every, NULL);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint32_t seed = id << 24 | i;

		if (!hold_ymm(seed))
			return 1;
		if (avx512 && !hold_zmm(seed))
			return 2;
		if (!hold_x87_mxcsr(seed))
			return 3;
	}
	return 0;
}

int main(void)
{
	struct features user = user_features(), kernel = kernel_features();
	int failures = 0, status;

	printf("avx: user %d kernel %d, avx512: user %d kernel %d\n", user.avx,
	       kernel.avx, user.avx512, kernel.avx512);
	if (user.avx > kernel.avx || user.avx512 > kernel.avx512) {
		printf("user mode is promised state that the kernel does not save\n");
		failures++;
	}
	if (!user.avx) {
		printf("no AVX here\n");
		return verdict("fpu_state", failures);
	}
	fflush(stdout);
	for (uint32_t i = 0; i < PROCESSES; i++)
		if (!fork())
			_exit(hold_registers(i + 1, user.avx512));
	for (int i = 0; i < PROCESSES; i++) {
		wait(&status);
		if (status) {
			printf("a process ended with status %x\n", status);
			failures++;
		}
	}
	return verdict("fpu_state", failures);
}
