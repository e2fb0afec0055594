/* What it costs a trainer to learn, at release, whether a batch was written to: written [BYTES]
 *
 * client/link/slab.c maps slots read-only and learns of a write by its fault, which costs nothing where there is none.
 * The kernel can be asked instead: a written page of a private mapping is the process's own, and PAGEMAP_SCAN (Linux
 * 6.7) looks for such pages. Or the pages of a writable mapping can be dropped without asking. Prints microseconds of
 * CPU time, medians, for a slot of 64x3x224x224 float32, or of BYTES. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 101, PAGE = 4096 };

/* <linux/fs.h>'s, which is older than the kernel on many machines. */
struct page_region {
	uint64_t start, end, categories;
};
struct pagemap_scan {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define SCAN_PAGEMAP _IOWR('f', 16, struct pagemap_scan)
enum { IS_FILE = 1 << 2, IS_PRESENT = 1 << 3, IS_SWAPPED = 1 << 4 };

static int pagemap;
static char *slot;
static size_t n_bytes;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Looks for one page that is not the file's. */
static void scan(void)
{
	struct page_region found;
	struct pagemap_scan s = { .size = sizeof s,
				  .start = (uintptr_t)slot,
				  .end = (uintptr_t)slot + n_bytes,
				  .vec = (uintptr_t)&found,
				  .vec_len = 1,
				  .max_pages = 1,
				  .category_inverted = IS_FILE,
				  .category_mask = IS_FILE,
				  .category_anyof_mask = IS_PRESENT | IS_SWAPPED,
				  .return_mask = IS_PRESENT };

	if (ioctl(pagemap, SCAN_PAGEMAP, &s) != 0)
		die("PAGEMAP_SCAN"); /* also when it finds a page: none was written */
}

static void drop(void)
{
	if (madvise(slot, n_bytes, MADV_DONTNEED) < 0)
		die("madvise");
}

static void read_pages(void)
{
	for (size_t at = 0; at < n_bytes; at += PAGE)
		(void)*(volatile char *)(slot + at);
}

static double cpu_us(void (*way)(void))
{
	struct timespec before, after;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
	way();
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
	return (double)(after.tv_sec - before.tv_sec) * 1e6 + (double)(after.tv_nsec - before.tv_nsec) / 1e3;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "PAGEMAP_SCAN", "drop", "fault in again", "read a byte of each page" };
	static void (*const ways[])(void) = { scan, drop, read_pages, read_pages };
	static double us[4][ROUNDS];
	int fd = memfd_create("written", MFD_CLOEXEC);
	char *shared;

	n_bytes = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64 * 3 * 224 * 224 * 4) / PAGE * PAGE;
	pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (!n_bytes || fd < 0 || ftruncate(fd, (off_t)n_bytes) < 0 || pagemap < 0)
		die("written");
	shared = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	slot = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd, 0);
	if (shared == MAP_FAILED || slot == MAP_FAILED)
		die("mmap");
	memset(shared, 1, n_bytes);
	read_pages();
	for (int round = 0; round < ROUNDS; round++)
		for (int way = 0; way < 4; way++)
			us[way][round] = cpu_us(ways[way]);
	for (int way = 0; way < 4; way++) {
		qsort(us[way], ROUNDS, sizeof us[way][0], compare);
		printf("%-26s %8.1f us\n", names[way], us[way][ROUNDS / 2]);
	}
	return 0;
}
