// SPDX-License-Identifier: GPL-2.0
/*
 * User mode attacks the guest kernel: no kernel address can be read, written or
 * jumped to, and every privileged instruction is refused. On pvm hosts this rests
 * on separate page tables alone, since kernel pages have U=1 there.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "guesttest.h"

#define GIB (1ull << 30)

static int violations, refused, accesses;

static int can_read(uint64_t address, uint64_t *value)
{
	accesses++;
	if (attempt())
		return 0;
	*value = *(volatile uint64_t *)address;
	return 1;
}

static int can_rewrite(uint64_t address)
{
	if (attempt())
		return 0;
	*(volatile uint64_t *)address = *(volatile uint64_t *)address;
	return 1;
}

static int can_add(uint64_t address)
{
	if (attempt())
		return 0;
	asm volatile("lock; addq $0, (%0)" ::"r"(address) : "memory");
	return 1;
}

static int can_jump(uint64_t address)
{
	if (attempt())
		return 0;
	((void (*)(void))address)();
	return 1;
}

static void try_address(const char *name, uint64_t address)
{
	uint64_t value = 0;
	int r = can_read(address, &value), w = can_rewrite(address);
	int a = can_add(address), x = can_jump(address);

	if (r || w || a || x) {
		violations++;
		printf("LEAK %s %" PRIx64 ": read %d write %d add %d jump %d, value %" PRIx64 "\n",
		       name, address, r, w, a, x, value);
	}
}

/* Where Linux has its parts without address randomisation (x86_64/mm.rst). */
static void fixed_addresses(void)
{
	static const struct {
		const char *name;
		uint64_t address;
	} places[] = {
		{ "text", 0xffffffff81000000 },
		{ "text+1M", 0xffffffff81100000 },
		{ "data", 0xffffffff82000000 },
		{ "modules", 0xffffffffc0000000 },
		{ "fixmap", 0xffffffffff578000 },
		{ "vsyscall", 0xffffffffff600000 },
		{ "direct map", 0xffff888000000000 },
		{ "direct map+1M", 0xffff888000100000 },
		{ "direct map+16M", 0xffff888001000000 },
		{ "vmalloc", 0xffffc90000000000 },
		{ "vmemmap", 0xffffea0000000000 },
		{ "cpu entry area", 0xfffffe0000000000 },
		{ "cpu entry area+4k", 0xfffffe0000001000 },
		{ "ldt", 0xffff880000000000 },
	};

	for (unsigned int i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		try_address(places[i].name, places[i].address);
}

/* Symbols that an attacker would look for, where the kernel says they are. */
static void symbols(void)
{
	static const char *const wanted[] = {
		"init_task", "sys_call_table", "idt_table", "pvm_vif",
		"entry_SYSCALL_64", "asm_exc_page_fault", "linux_banner",
		"__per_cpu_load", "init_top_pgt",
	};
	char line[512], name[256], kind;
	uint64_t address;
	FILE *kallsyms = fopen("/proc/kallsyms", "r");

	if (!kallsyms) {
		perror("kallsyms");
		return;
	}
	while (fgets(line, sizeof(line), kallsyms)) {
		if (sscanf(line, "%" SCNx64 " %c %255s", &address, &kind, name) != 3 || !address)
			continue;
		for (unsigned int i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (!strcmp(name, wanted[i]))
				try_address(name, address);
	}
	fclose(kallsyms);
}

/* Where the CPU itself says its tables are; UMIP may refuse to tell. */
static void descriptor_tables(void)
{
	struct {
		uint16_t limit;
		uint64_t base;
	} __attribute__((packed)) table = { 0 };

	if (!attempt()) {
		asm volatile("sidt %0" : "=m"(table));
		try_address("sidt", table.base);
	}
	if (!attempt()) {
		asm volatile("sgdt %0" : "=m"(table));
		try_address("sgdt", table.base);
	}
}

static void sweep(const char *name, uint64_t from, uint64_t to, uint64_t step)
{
	uint64_t value;

	/* The end of the address space is 0: compare by distance. */
	for (uint64_t offset = 0; offset < to - from; offset += step)
		if (can_read(from + offset, &value) && ++violations < 20)
			printf("LEAK %s %" PRIx64 "=%" PRIx64 "\n", name, from + offset, value);
}

static void sweeps(void)
{
	const uint64_t direct_map = 0xffff888000000000, image = 0xffffffff80000000;

	/* The whole kernel half: eight places in each entry of the top table. */
	for (int k = 0; k < 8; k++)
		sweep("kernel half", 0xffff800000000000 + k * GIB + (k & 1 ? 2 << 20 : 0), 0, 512 * GIB);
	sweep("direct map", direct_map, direct_map + GIB / 2, 64 << 10);
	sweep("image", image, image + GIB / 2, 64 << 10);
}

#define REFUSED(name, instructions)                                              \
	do {                                                                     \
		if (!attempt()) {                                                \
			asm volatile(instructions ::: "memory", "rax", "rbx",    \
				     "rcx", "rdx", "r11");                       \
			violations++;                                            \
			printf("EXECUTED %s\n", name);                           \
		} else if (fault_signal != SIGSEGV && fault_signal != SIGILL) {  \
			printf("%s: signal %d\n", name, fault_signal);           \
		} else {                                                         \
			refused++;                                               \
		}                                                                \
	} while (0)

/* An iretq frame: ss, rsp, rflags, cs, rip of label 1, with rsp kept in rbx. */
#define IRETQ(ss, cs)                                                            \
	"mov %%rsp, %%rbx; mov %%rsp, %%rax; pushq $" ss "; pushq %%rax; "       \
	"pushq $0x202; pushq $" cs "; lea 1f(%%rip), %%rax; pushq %%rax; iretq; " \
	"1: mov %%rbx, %%rsp"

/*
 * QEMU's software CPU, which the lab runs on, executes wbinvd at every privilege
 * level; it has no caches that it could write back. The kernel's command line
 * tells that the host is emulated: CPUID in a guest does not.
 */
static int emulated(void)
{
	char line[4096] = "";
	FILE *f = fopen("/proc/cmdline", "r");

	if (f) {
		if (!fgets(line, sizeof(line), f))
			line[0] = 0;
		fclose(f);
	}
	return strstr(line, "runner.emulated") != NULL;
}

static void privileged_instructions(void)
{
	REFUSED("cli", "cli");
	REFUSED("sti", "sti");
	REFUSED("hlt", "hlt");
	REFUSED("read cr0", "mov %%cr0, %%rax");
	REFUSED("read cr2", "mov %%cr2, %%rax");
	REFUSED("read cr3", "mov %%cr3, %%rax");
	REFUSED("read cr4", "mov %%cr4, %%rax");
	REFUSED("write cr3", "xor %%eax, %%eax; mov %%rax, %%cr3");
	REFUSED("read dr7", "mov %%dr7, %%rax");
	/* MSR_PVM_CTRL of pvm hosts, by which the kernel runs natively */
	REFUSED("rdmsr", "mov $0x4b564d10, %%ecx; rdmsr");
	REFUSED("wrmsr", "mov $0x4b564d10, %%ecx; xor %%eax, %%eax; xor %%edx, %%edx; wrmsr");
	REFUSED("wrmsr lstar", "mov $0xc0000082, %%ecx; xor %%eax, %%eax; xor %%edx, %%edx; wrmsr");
	REFUSED("xsetbv", "xor %%ecx, %%ecx; mov $7, %%eax; xor %%edx, %%edx; xsetbv");
	REFUSED("sysretq", "lea 1f(%%rip), %%rcx; mov $0x202, %%r11d; sysretq; 1:");
	REFUSED("swapgs", "swapgs");
	REFUSED("in", "mov $0x3f8, %%edx; inb %%dx, %%al");
	REFUSED("out", "mov $0x3f8, %%edx; mov $33, %%al; outb %%al, %%dx");
	REFUSED("invlpg", "xor %%eax, %%eax; invlpg (%%rax)");
	if (!emulated())
		REFUSED("wbinvd", "wbinvd");
	REFUSED("clts", "clts");
	REFUSED("lgdt", "lgdt 0(%%rsp)");
	REFUSED("lidt", "lidt 0(%%rsp)");
	REFUSED("ltr", "xor %%eax, %%eax; ltr %%ax");
	/* the stack segment that the kernel itself uses on pvm hosts */
	REFUSED("iretq with ss 0x3b", IRETQ("0x3b", "0x33"));
	REFUSED("iretq to the kernel", IRETQ("0x18", "0x10"));
	REFUSED("int 0x20", "int $0x20");
	REFUSED("int 0xec", "int $0xec");
}

/* Not refused everywhere, and harmless: printed only. */
static void hypercall(void)
{
	long result = 5;

	if (!attempt()) {
		asm volatile("vmcall" : "+a"(result)::"memory");
		printf("vmcall from user mode returned %ld\n", result);
	} else {
		printf("vmcall: signal %d\n", fault_signal);
	}
}

int main(void)
{
	catch_faults();
	fixed_addresses();
	symbols();
	descriptor_tables();
	sweeps();
	privileged_instructions();
	hypercall();
	printf("%d addresses read, %d privileged instructions refused, %d violations\n",
	       accesses, refused, violations);
	return verdict("isolation", violations);
}
