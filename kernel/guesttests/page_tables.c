// SPDX-License-Identifier: GPL-2.0
/*
 * Page tables stay coherent with what the process asked for: mprotect, munmap,
 * mremap, copy on write after fork, MADV_DONTNEED, and protection inside a huge
 * page. A host that shadows the guest's tables must notice every change.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guesttest.h"

enum { ROUNDS = 200, PAGES = 16, PAGE = 4096 };

#define RW (PROT_READ | PROT_WRITE)

static int failures;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	failures++;
	printf("wrong: %s\n", what);
}

static int can_write(volatile char *p)
{
	if (attempt())
		return 0;
	*p = 1;
	return 1;
}

static int can_read(volatile char *p)
{
	if (attempt())
		return 0;
	(void)*p;
	return 1;
}

static char *map(size_t size)
{
	char *p = mmap(NULL, size, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return p;
}

static char *page(char *base, int n)
{
	return base + n * PAGE;
}

/* Parent and child write to pages they share until then. */
static void copy_on_write(char *p)
{
	int status;
	pid_t pid = fork();

	if (!pid) {
		for (int i = 4; i < PAGES; i++) {
			if (*page(p, i) != i)
				_exit(1);
			*page(p, i) = 99;
		}
		_exit(0);
	}
	for (int i = 10; i < PAGES; i++)
		page(p, i)[1] = 7;
	waitpid(pid, &status, 0);
	check(status == 0, "the child sees what was there at the fork");
	for (int i = 4; i < PAGES; i++)
		check(*page(p, i) == i, "the parent keeps its pages");
}

static void small_pages(void)
{
	char *p = map(PAGES * PAGE);

	for (int i = 0; i < PAGES; i++)
		*page(p, i) = i;

	mprotect(page(p, 1), PAGE, PROT_READ);
	check(!can_write(page(p, 1)), "a read-only page refuses writes");
	mprotect(page(p, 1), PAGE, PROT_NONE);
	check(!can_read(page(p, 1)), "a page without access refuses reads");
	mprotect(page(p, 1), PAGE, RW);
	check(can_write(page(p, 1)), "a page can be written again");
	check(page(p, 1)[1] == 0, "its other bytes are as they were");

	munmap(page(p, 2), PAGE);
	check(!can_read(page(p, 2)), "an unmapped page is gone");
	char *moved = mremap(page(p, 3), PAGE, PAGE,
			     MREMAP_MAYMOVE | MREMAP_FIXED, page(p, 2));

	check(moved == page(p, 2) && *moved == 3, "a moved page has its content");
	check(!can_read(page(p, 3)), "nothing is left where it was");

	copy_on_write(p);

	madvise(p, PAGE, MADV_DONTNEED);
	check(p[0] == 0, "a dropped page reads as zero");
	munmap(p, PAGES * PAGE);
	check(!can_read(page(p, 4)), "the whole range is gone");
}

static void huge_pages(void)
{
	const size_t size = 64 << 20;
	char *p = map(size);

	madvise(p, size, MADV_HUGEPAGE);
	memset(p, 5, size);
	for (size_t i = 0; i < size; i += PAGE)
		check(p[i] == 5, "huge pages hold what was written");
	mprotect(page(p, 1), PAGE, PROT_READ);
	check(!can_write(page(p, 1)), "a read-only page in a huge one refuses writes");
	munmap(p, size);
}

int main(void)
{
	catch_faults();
	for (int i = 0; i < ROUNDS; i++)
		small_pages();
	huge_pages();
	return verdict("page_tables", failures);
}
