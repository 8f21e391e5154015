// SPDX-License-Identifier: GPL-2.0
/*
 * CPU numbers as user mode sees them: on every CPU getcpu by system call, by
 * vDSO and by the C library must agree. On pvm hosts TSC_AUX is the host's, so
 * that the vDSO must not take the number from there; rdtscp is printed only.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "guesttest.h"

#define MAX_CPUS 64

typedef int getcpu_fn(unsigned int *cpu, unsigned int *node, void *unused);

/* Finds __vdso_getcpu in the vDSO that the kernel mapped. */
static getcpu_fn *find_vdso_getcpu(void)
{
	char *base = (char *)getauxval(AT_SYSINFO_EHDR);
	Elf64_Sym *symbols = NULL;
	Elf64_Dyn *dynamic = NULL;
	char *strings = NULL;

	if (!base)
		return NULL;
	Elf64_Ehdr *header = (Elf64_Ehdr *)base;
	Elf64_Phdr *segments = (Elf64_Phdr *)(base + header->e_phoff);

	for (int i = 0; i < header->e_phnum; i++)
		if (segments[i].p_type == PT_DYNAMIC)
			dynamic = (Elf64_Dyn *)(base + segments[i].p_offset);
	for (; dynamic && dynamic->d_tag; dynamic++) {
		if (dynamic->d_tag == DT_STRTAB)
			strings = base + dynamic->d_un.d_ptr;
		if (dynamic->d_tag == DT_SYMTAB)
			symbols = (Elf64_Sym *)(base + dynamic->d_un.d_ptr);
	}
	/* The symbol table ends where the string table begins. */
	for (Elf64_Sym *s = symbols; s && strings && (char *)s < strings; s++)
		if (!strcmp(strings + s->st_name, "__vdso_getcpu"))
			return (getcpu_fn *)(base + s->st_value);
	return NULL;
}

int main(void)
{
	getcpu_fn *vdso_getcpu = find_vdso_getcpu();
	int cpus = 0, failures = 0;
	uint32_t low, high, aux;

	if (!vdso_getcpu) {
		printf("no __vdso_getcpu\n");
		return verdict("cpu_number", 1);
	}
	for (int cpu = 0; cpu < MAX_CPUS; cpu++) {
		unsigned int by_syscall = ~0u, by_vdso = ~0u, node = ~0u;
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			continue;
		cpus++;
		syscall(SYS_getcpu, &by_syscall, NULL, NULL);
		vdso_getcpu(&by_vdso, &node, NULL);
		int by_libc = sched_getcpu();
		int ok = by_syscall == (unsigned int)cpu && by_vdso == by_syscall &&
			 by_libc == cpu && node == 0;

		printf("cpu %d: syscall %u, vdso %u (node %u), libc %d%s\n", cpu,
		       by_syscall, by_vdso, node, by_libc, ok ? "" : " WRONG");
		failures += !ok;
	}
	asm volatile("rdtscp" : "=a"(low), "=d"(high), "=c"(aux));
	printf("%d cpus, rdtscp gives %x\n", cpus, aux);
	return verdict("cpu_number", failures + !cpus);
}
