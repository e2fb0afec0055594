/* Sealed shared memory, attacked as a trainer could: through its descriptor, and through /proc. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "batch/slab-release.h"
#include "batch/slab.h"
#include "batch/slots.h"
#include "support/suite.h"

START_TEST(test_a_trainer_sees_what_the_daemon_writes)
{
	/* Before and after mapping. */
	struct slab s;
	ck_assert_int_eq(slab_init(&s, 100000, 100000), 0);
	ck_assert_uint_ge(s.bytes, 100000);
	memset(s.base, 7, s.bytes);
	uint8_t *p = mmap(NULL, s.bytes, PROT_READ, MAP_SHARED, s.fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_uint_eq(p[s.bytes - 1], 7);
	s.base[5] = 9;
	ck_assert_uint_eq(p[5], 9);
	slab_finish(&s);
	ck_assert_uint_eq(p[5], 9); /* the trainer's mapping is its own */
}
END_TEST

static bool is_mapped(const void *base)
{
	char line[512], address[32];
	bool found = false;
	FILE *f = fopen("/proc/self/maps", "r");
	ck_assert_ptr_nonnull(f);
	snprintf(address, sizeof(address), "%lx-", (unsigned long)(uintptr_t)base);
	while (fgets(line, sizeof(line), f))
		found |= strncmp(line, address, strlen(address)) == 0;
	fclose(f);
	return found;
}

START_TEST(test_making_a_slab_waits_for_those_that_were_given_back)
{
	struct slab old, new;
	ck_assert_int_eq(slab_init(&old, 64 << 20, 64 << 20), 0);
	const void *base = old.base;
	int fd = old.fd;
	ck_assert(is_mapped(base));
	slab_finish(&old);
	ck_assert_int_eq(slab_init(&new, 100 << 20, 4096), 0);
	ck_assert(!is_mapped(base) || new.base == base);
	ck_assert(fcntl(fd, F_GETFD) < 0 || new.fd == fd || new.writable_fd == fd);
	slab_finish(&new);
	slab_release_end();
	slab_release_end();
}
END_TEST

static void count_time(void *arg, uid_t payer, uint64_t ns)
{
	uint64_t *of = arg;
	ck_assert_uint_lt(payer, 3);
	of[payer] += ns;
}

START_TEST(test_freeing_a_slab_takes_time_of_its_payers)
{
	struct slab s[3];
	uint64_t of[3] = { 0 }, before;
	slab_release_charge(count_time, of);
	for (uid_t i = 0; i < 3; i++) {
		ck_assert_int_eq(slab_init(&s[i], 8 << 20, 8 << 20), 0);
		s[i].payer = i;
	}
	slab_finish(&s[1]);
	slab_finish(&s[2]);
	slab_release_wait();
	slab_release_charge(NULL, NULL);
	ck_assert_uint_eq(of[0], 0);
	ck_assert_uint_gt(of[1], 0);
	ck_assert_uint_gt(of[2], 0);
	before = of[1] + of[2];
	slab_finish(&s[0]);
	slab_release_end();
	ck_assert_uint_eq(of[0] + of[1] + of[2], before);
}
END_TEST

START_TEST(test_a_child_frees_slabs_without_its_parents_thread)
{
#ifdef __SANITIZE_THREAD__
	puts("skipped: ThreadSanitizer lets a child of a process with threads begin none");
#else
	struct slab s;
	int status;
	ck_assert_int_eq(slab_init(&s, 4096, 4096), 0);
	slab_finish(&s);
	slab_release_wait(); /* AddressSanitizer's allocator must not be in the thread's hands when it is copied */
	pid_t pid = fork();
	if (pid == 0) {
		if (slab_init(&s, 4096, 4096))
			_exit(1);
		slab_finish(&s);
		_exit(slab_init(&s, 4096, 4096));
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	slab_release_end();
#endif
}
END_TEST

static void attack(int fd, size_t bytes)
{
	char path[64];
	ck_assert_ptr_eq(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
	void *p = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(mprotect(p, bytes, PROT_READ | PROT_WRITE), -1);
	ck_assert_int_eq(ftruncate(fd, 0), -1);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes * 2), -1);
	ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	ck_assert_int_eq(write(fd, "x", 1), -1);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
	/* Opened again for writing, as root or owner may: the seal holds. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int rw = open(path, O_RDWR);
	if (rw < 0)
		return;
	ck_assert_ptr_eq(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0), MAP_FAILED);
	ck_assert_int_eq(write(rw, "x", 1), -1);
	ck_assert_int_eq(ftruncate(rw, 0), -1);
	ck_assert_int_eq(fallocate(rw, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
	close(rw);
}

START_TEST(test_no_descriptor_of_it_can_change_it)
{
	/* As the same user. */
	struct slab s;
	ck_assert_int_eq(slab_init(&s, 1 << 20, 1 << 20), 0);
	memset(s.base, 1, s.bytes);
	attack(s.fd, s.bytes);
	size_t n_changed = 0;
	for (size_t i = 0; i < s.bytes; i++)
		n_changed += s.base[i] != 1;
	ck_assert_uint_eq(n_changed, 0);
	slab_finish(&s);
}
END_TEST

static size_t pages_of(int fd, size_t *end)
{
	struct stat st;
	ck_assert_int_eq(fstat(fd, &st), 0);
	*end = (size_t)st.st_size;
	return (size_t)st.st_blocks * 512;
}

START_TEST(test_a_slab_ends_where_its_pages_end)
{
	/* While it may grow and afterwards: a trainer's mapping of all of it finds no hole to fill. */
	enum { FIRST = 1 << 20, MORE = 2 << 20, ALL = 8 << 20 };
	struct slab s;
	size_t end;
	int seals = F_SEAL_SHRINK | 0x10 /* F_SEAL_FUTURE_WRITE */;
	ck_assert_int_eq(slab_init(&s, ALL, FIRST), 0);
	ck_assert_uint_eq(s.bytes, ALL);
	ck_assert_uint_eq(pages_of(s.fd, &end), FIRST);
	ck_assert_uint_eq(end, FIRST);
	ck_assert_int_eq(fcntl(s.fd, F_GET_SEALS) & seals, seals);
	ck_assert_int_eq(ftruncate(s.fd, ALL), -1);
	ck_assert_int_eq(fallocate(s.fd, 0, 0, ALL), -1);
	uint8_t *p = mmap(NULL, ALL, PROT_READ, MAP_SHARED, s.fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	ck_assert_int_eq(slab_extend(&s, FIRST, MORE), 0);
	ck_assert_uint_eq(pages_of(s.fd, &end), FIRST + MORE);
	ck_assert_uint_eq(end, FIRST + MORE);
	memset(s.base, 3, FIRST + MORE);
	ck_assert_uint_eq(p[FIRST + MORE - 1], 3);
	ck_assert_int_eq(slab_seal(&s), 0);
	ck_assert_int_eq(s.writable_fd, -1);
	attack(s.fd, FIRST + MORE);
	ck_assert_int_ne(fcntl(s.fd, F_GET_SEALS) & F_SEAL_GROW, 0);
	munmap(p, ALL);
	slab_finish(&s);
}
END_TEST

START_TEST(test_a_failed_growth_leaves_a_slab_as_it_was)
{
	/* The process's limit for files holds for a memfd, too. */
	struct slab s;
	size_t end;
	struct rlimit least = { 2 << 20, RLIM_INFINITY }, most;
	ck_assert_int_eq(slab_init(&s, 8 << 20, 1 << 20), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &most), 0);
	signal(SIGXFSZ, SIG_IGN);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &least), 0);
	ck_assert_int_eq(slab_extend(&s, 1 << 20, 4 << 20), -EFBIG);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &most), 0);
	ck_assert_uint_eq(pages_of(s.fd, &end), 1 << 20);
	ck_assert_uint_eq(end, 1 << 20);
	ck_assert_int_eq(slab_extend(&s, 1 << 20, 1 << 20), 0);
	slab_finish(&s);
}
END_TEST

START_TEST(test_another_user_cannot_open_it_for_writing)
{
	/* A memfd's inode is 0777 unless its mode is set. */
	struct slab s;
	if (geteuid() != 0) {
		printf("skipped: only root can become another user\n");
		return;
	}
	ck_assert_int_eq(slab_init(&s, 1 << 20, 1 << 20), 0);
	pid_t child = fork();
	if (child == 0) {
		char path[64];
		snprintf(path, sizeof(path), "/proc/self/fd/%d", s.fd);
		if (setgid(65534) || setuid(65534))
			_exit(2);
		if (open(path, O_RDWR) >= 0)
			_exit(1);
		void *p = mmap(NULL, s.bytes, PROT_READ, MAP_SHARED, s.fd, 0);
		_exit(p == MAP_FAILED ? 3 : 0);
	}
	int status;
	waitpid(child, &status, 0);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
	slab_finish(&s);
}
END_TEST

START_TEST(test_impossible_sizes_are_errors)
{
	/* A size of 0, and one so large that rounding up overflows. */
	struct slab s;
	ck_assert_int_eq(slab_init(&s, 0, 0), -EOVERFLOW);
	ck_assert_int_eq(slab_init(&s, SIZE_MAX, SIZE_MAX), -EOVERFLOW);
	slab_finish(&s);
}
END_TEST

/* The layout of two dense fields. */
static int make_layout(size_t row_bytes, size_t label_bytes, uint32_t n, struct slot_layout *l)
{
	const struct slot_field fields[] = { { .item_bytes = row_bytes }, { .item_bytes = label_bytes } };
	return slot_layout_make(fields, 2, n, l);
}

START_TEST(test_a_slot_has_room_for_rows_labels_and_indices)
{
	/* Nothing overlaps, everything is aligned, and sizes that overflow are refused. */
	static const struct {
		size_t row, label;
		uint32_t n;
	} cases[] = { { 602112, 8, 64 }, { 1, 1, 1 }, { 0, 8, 3 }, { 4096, 4096, 7 }, { 3, 0, 65536 } };
	struct slot_layout l;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ck_assert_int_eq(make_layout(cases[i].row, cases[i].label, cases[i].n, &l), 0);
		ck_assert_uint_eq(l.field[0].offset, 0);
		ck_assert_uint_eq(l.first_row_bytes, cases[i].row);
		ck_assert_uint_eq(l.row_bytes, cases[i].row + cases[i].label);
		ck_assert_uint_ge(l.field[1].offset, cases[i].row * cases[i].n);
		ck_assert_uint_eq(l.rest_offset, l.field[1].offset);
		ck_assert_uint_ge(l.indices_offset, l.field[1].offset + cases[i].label * cases[i].n);
		ck_assert_uint_ge(l.slot_bytes, l.indices_offset + 8u * cases[i].n);
		ck_assert_uint_eq(l.field[1].offset % 256, 0);
		ck_assert_uint_eq(l.indices_offset % 256, 0);
		ck_assert_uint_eq(l.slot_bytes % 4096, 0);
	}
	ck_assert_int_eq(make_layout(SIZE_MAX / 2, 8, 3, &l), -EOVERFLOW);
	ck_assert_int_eq(make_layout(8, SIZE_MAX / 2, 3, &l), -EOVERFLOW);
	ck_assert_int_eq(make_layout(SIZE_MAX - 10, 0, 1, &l), -EOVERFLOW);
}
END_TEST

START_TEST(test_ragged_fields_lie_behind_all_that_a_gpu_gets)
{
	/* Dense fields and indices come first, in whatever order the fields are; values have their room; 64 fields fit
	 * and 65 do not; room that overflows is refused. */
	struct slot_field fields[SLOT_MAX_FIELDS + 1] = {
		{ .ragged = true, .item_bytes = 1, .most_values = 1000 },
		{ .item_bytes = 300 },
		{ .ragged = true, .item_bytes = 16, .most_values = 7 },
		{ .item_bytes = 8 },
	};
	struct slot_layout l;
	ck_assert_int_eq(slot_layout_make(fields, 4, 10, &l), 0);
	ck_assert(l.any_ragged);
	ck_assert_uint_eq(l.field[1].offset, 0);
	ck_assert_uint_eq(l.first_row_bytes, 300);
	ck_assert_uint_eq(l.field[3].offset, 3072);
	ck_assert_uint_eq(l.rest_offset, 3072);
	ck_assert_uint_eq(l.indices_offset, 3072 + 256);
	ck_assert_uint_eq(l.field[0].offset, 3072 + 512);
	ck_assert_uint_eq(l.field[0].values_offset, 3072 + 768);
	ck_assert_uint_eq(l.field[2].offset, 3072 + 768 + 1024);
	ck_assert_uint_eq(l.field[2].values_offset, l.field[2].offset + 256);
	ck_assert_uint_ge(l.slot_bytes, l.field[2].values_offset + 7 * 16);
	ck_assert_int_eq(slot_layout_make(fields, 1, 10, &l), 0); /* no dense field */
	ck_assert_uint_eq(l.indices_offset, 0);
	ck_assert_uint_eq(l.first_row_bytes, 0);
	ck_assert_int_eq(slot_layout_make(fields, SLOT_MAX_FIELDS, 10, &l), 0);
	ck_assert_int_eq(slot_layout_make(fields, SLOT_MAX_FIELDS + 1, 10, &l), -EOVERFLOW);
	fields[0].most_values = UINT64_MAX;
	ck_assert_int_eq(slot_layout_make(fields, 1, 10, &l), -EOVERFLOW);
}
END_TEST

START_TEST(test_the_charge_is_refunded_with_the_last_reference)
{
	/* An orphan's reference keeps memory and charge. */
	struct slot_layout l;
	struct slots *s;
	struct accounts accounts = { 0 };
	make_layout(1000, 8, 4, &l);
	ck_assert_int_eq(slots_create(&l, 3, 3, &s), 0);
	ck_assert_uint_eq(s->slab.bytes, 3 * l.slot_bytes);
	ck_assert_int_eq(charge_begin(&s->bytes, &accounts, 1, ACCOUNT_SLOT_BYTES, s->slab.bytes), 0);
	slots_ref(s);
	slots_unref(s);
	ck_assert_uint_eq(accounts_used(&accounts, ACCOUNT_SLOT_BYTES), 3 * l.slot_bytes);
	slots_unref(s);
	ck_assert(accounts_balanced(&accounts));
}
END_TEST

SUITE(slab)
{
	Suite *s = suite_create("slab");
	TCase *t = tcase_create("slab");
	tcase_add_test(t, test_making_a_slab_waits_for_those_that_were_given_back);
	tcase_add_test(t, test_freeing_a_slab_takes_time_of_its_payers);
	tcase_add_test(t, test_a_child_frees_slabs_without_its_parents_thread);
	tcase_add_test(t, test_a_trainer_sees_what_the_daemon_writes);
	tcase_add_test(t, test_no_descriptor_of_it_can_change_it);
	tcase_add_test(t, test_a_slab_ends_where_its_pages_end);
	tcase_add_test(t, test_a_failed_growth_leaves_a_slab_as_it_was);
	tcase_add_test(t, test_another_user_cannot_open_it_for_writing);
	tcase_add_test(t, test_impossible_sizes_are_errors);
	tcase_add_test(t, test_a_slot_has_room_for_rows_labels_and_indices);
	tcase_add_test(t, test_ragged_fields_lie_behind_all_that_a_gpu_gets);
	tcase_add_test(t, test_the_charge_is_refunded_with_the_last_reference);
	suite_add_tcase(s, t);
	return s;
}
