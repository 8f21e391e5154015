// SPDX-License-Identifier: GPL-2.0
/*
 * New memory is zero, wherever it comes from: huge and small pages, while free memory
 * is reported to the host, used, filled and freed again in all sizes by several
 * processes. A kernel that takes what the host gave back for zeros (the parameter
 * "spared" of page_reporting counts it) must be right about it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guesttest.h"

enum { PAGE = 4096, HUGE = 2 << 20, ROUNDS = 12, PROCESSES = 3, SECONDS = 2 };

static void set(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, value, strlen(value)) < 0)
		perror(path);
	if (fd >= 0)
		close(fd);
}

/*
 * Linux turns huge pages off in small guests, whatever it was built with. In others
 * what is read first would be a huge page of zeros that all share.
 */
static void allow_huge_pages(void)
{
	set("/sys/kernel/mm/transparent_hugepage/enabled", "madvise");
	set("/sys/kernel/mm/transparent_hugepage/use_zero_page", "0");
}

/* Reports all free memory. Returns whether the kernel and the machine can. */
static int report(void)
{
	int fd = open("/proc/sys/vm/report_free_memory", O_WRONLY);
	int done = fd >= 0 && write(fd, "1", 1) == 1;

	if (fd >= 0 && !done && errno != ENODEV)
		perror("report_free_memory");
	if (fd >= 0)
		close(fd);
	return done;
}

static unsigned long spared(void)
{
	unsigned long n = 0;
	FILE *f = fopen("/sys/module/page_reporting/parameters/spared", "r");

	if (f) {
		if (fscanf(f, "%lu", &n) != 1)
			n = 0;
		fclose(f);
	}
	return n;
}

/*
 * Takes size bytes, at a multiple of 2 MiB and in huge pages if it is one, looks at
 * each, fills them and gives them back. Returns how many words were not zero.
 */
static long use(size_t size)
{
	char *area = mmap(NULL, size + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *words = (uint64_t *)(((uintptr_t)area + HUGE - 1) & -(uintptr_t)HUGE);
	long wrong = 0;

	if (area == MAP_FAILED)
		return 0; /* another process has it */
	if (size % HUGE == 0)
		madvise(words, size, MADV_HUGEPAGE);
	for (size_t i = 0; i < size / sizeof(*words); i++) {
		wrong += words[i] != 0;
		words[i] = ~(uint64_t)i;
	}
	munmap(area, size + HUGE);
	return wrong;
}

/* Uses memory in sizes that vary, at most most bytes at a time, until the time is over. */
static int churn(unsigned int seed, size_t most)
{
	time_t end = time(NULL) + SECONDS;
	long wrong = 0;

	while (time(NULL) < end) {
		size_t n = (size_t)rand_r(&seed) % most + 1;

		switch (rand_r(&seed) % 3) {
		case 0:
			wrong += use((n / 64 + PAGE - 1) & -(size_t)PAGE);
			break;
		case 1:
			wrong += use((n + HUGE - 1) & -(size_t)HUGE);
			break;
		default:
			report();
		}
	}
	return wrong != 0;
}

int main(void)
{
	struct sysinfo info;
	unsigned long before = spared();
	int failures = 0, can;
	size_t size;

	allow_huge_pages();
	sysinfo(&info);
	size = (info.freeram * info.mem_unit / 4) & -(size_t)HUGE;
	if (size > 128 << 20)
		size = 128 << 20;
	can = report();
	for (int i = 0; i < ROUNDS; i++) {
		long wrong = use(size);

		if (wrong) {
			failures++;
			printf("round %d: %ld words of %zu MiB are not zero\n", i, wrong, size >> 20);
		}
		if (i % 2)
			report();
	}
	printf("%lu blocks were spared, reports at once: %s\n", spared() - before, can ? "yes" : "no");
	if (can && spared() - before < size / HUGE / 2) {
		failures++;
		printf("of %zu blocks at least\n", size / HUGE);
	}
	for (int i = 0; i < PROCESSES; i++) {
		if (!fork())
			_exit(churn(i + 1, size / PROCESSES));
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status;

		if (wait(&status) < 0 || status) {
			failures++;
			printf("a process found memory that is not zero, status %#x\n", status);
		}
	}
	return verdict("zeroed_pages", failures);
}
